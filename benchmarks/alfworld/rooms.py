"""Rooms of the generated games: receptacles, objects and scene numbers of each kind of room.

Kinds of rooms, the split of scenes and which task belongs where follow ALFRED; counts are ours.
"""

from __future__ import annotations

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
KINDS = dict(zip(TASK_TYPES, ("pick", "look", "clean", "heat", "cool", "pick2"), strict=True))

# receptacle -> (fewest, most) of it in a room
_Layout = dict[str, tuple[int, int]]

STOCK_ROOMS: dict[str, _Layout] = {
    "Kitchen": {
        "Cabinet": (3, 6), "Drawer": (2, 4), "CounterTop": (1, 3), "Fridge": (1, 1), "Microwave": (1, 1),
        "SinkBasin": (1, 1), "StoveBurner": (2, 4), "GarbageCan": (1, 1), "CoffeeMachine": (1, 1),
        "DiningTable": (0, 1), "Shelf": (0, 2), "Toaster": (1, 1), "SideTable": (0, 1),
    },
    "LivingRoom": {
        "Sofa": (1, 1), "ArmChair": (1, 2), "CoffeeTable": (1, 1), "SideTable": (1, 2), "Drawer": (1, 4),
        "Shelf": (1, 3), "Dresser": (0, 1), "GarbageCan": (1, 1), "Cabinet": (0, 3), "Safe": (0, 1),
        "DiningTable": (0, 1), "Ottoman": (0, 1),
    },
    "Bedroom": {
        "Bed": (1, 1), "Desk": (1, 1), "Drawer": (2, 5), "Shelf": (1, 4), "SideTable": (1, 2), "Dresser": (0, 1),
        "GarbageCan": (1, 1), "LaundryHamper": (0, 1), "Safe": (0, 1), "ArmChair": (0, 1),
    },
    "Bathroom": {
        "Toilet": (1, 1), "SinkBasin": (1, 2), "CounterTop": (1, 1), "Cabinet": (2, 4), "Drawer": (0, 3),
        "GarbageCan": (1, 1), "ToiletPaperHanger": (1, 1), "TowelHolder": (1, 1), "HandTowelHolder": (1, 2),
        "BathtubBasin": (0, 1), "Shelf": (0, 1), "Cart": (0, 1),
    },
}  # fmt: skip

SMALL_ROOMS: dict[str, _Layout] = {
    "Kitchen": {
        "Cabinet": (1, 2), "Drawer": (0, 1), "CounterTop": (1, 1), "Fridge": (1, 1), "Microwave": (1, 1),
        "SinkBasin": (1, 1), "StoveBurner": (0, 1), "GarbageCan": (0, 1), "DiningTable": (0, 1), "Shelf": (0, 1),
    },
    "LivingRoom": {
        "Sofa": (1, 1), "ArmChair": (0, 1), "CoffeeTable": (1, 1), "SideTable": (1, 2), "Drawer": (0, 2),
        "Shelf": (0, 1), "Dresser": (0, 1), "GarbageCan": (0, 1), "Cabinet": (0, 1),
    },
    "Bedroom": {
        "Bed": (1, 1), "Desk": (1, 1), "Drawer": (1, 2), "Shelf": (0, 1), "SideTable": (1, 1), "Dresser": (0, 1),
        "GarbageCan": (0, 1),
    },
    "Bathroom": {
        "Toilet": (1, 1), "SinkBasin": (1, 1), "CounterTop": (1, 1), "Cabinet": (1, 2), "Drawer": (0, 1),
        "GarbageCan": (0, 1), "TowelHolder": (0, 1), "HandTowelHolder": (0, 1),
    },
}  # fmt: skip

# distractors: (fewest, most) classes, and most objects of one class
STOCK_DISTRACTORS = (8, 12, 2)
SMALL_DISTRACTORS = (3, 5, 1)

ROOM_OBJECTS = {
    "Kitchen": (
        "Apple", "Bread", "Tomato", "Potato", "Lettuce", "Egg", "Plate", "Bowl", "Mug", "Cup", "Pan", "Pot", "Knife",
        "ButterKnife", "Fork", "Spoon", "Spatula", "Ladle", "DishSponge", "SaltShaker", "PepperShaker", "SoapBottle",
        "Kettle", "Glassbottle", "WineBottle", "Statue", "Vase",
    ),
    "LivingRoom": (
        "Book", "CellPhone", "CreditCard", "KeyChain", "Laptop", "Newspaper", "Pillow", "RemoteControl", "Box",
        "Statue", "Vase", "WateringCan", "TissueBox", "Watch", "Pen", "Pencil",
    ),
    "Bedroom": (
        "AlarmClock", "Book", "CD", "CellPhone", "CreditCard", "KeyChain", "Laptop", "Pen", "Pencil", "Pillow", "Bowl",
        "Mug", "TissueBox", "BaseballBat", "BasketBall", "TennisRacket", "Watch", "Cloth",
    ),
    "Bathroom": (
        "Candle", "Cloth", "HandTowel", "SoapBar", "SoapBottle", "SprayBottle", "TissueBox", "ToiletPaper",
        "DishSponge", "Plunger", "Towel",
    ),
}  # fmt: skip

FIRST_SCENE = {"Kitchen": 0, "LivingRoom": 200, "Bedroom": 300, "Bathroom": 400}
TRAIN_SCENES = (7, 30)
UNSEEN_SCENES = (1, 6)

TASK_ROOMS = {
    "pick_and_place_simple": tuple(STOCK_ROOMS),
    "look_at_obj_in_light": ("LivingRoom", "Bedroom"),
    "pick_clean_then_place_in_recep": ("Kitchen", "Bathroom"),
    "pick_heat_then_place_in_recep": ("Kitchen",),
    "pick_cool_then_place_in_recep": ("Kitchen",),
    "pick_two_obj_and_place": tuple(STOCK_ROOMS),
}

# task type -> (ability the object needs, receptacle that treats it)
TREATMENTS = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}
LAMPS = {"LivingRoom": ("DeskLamp", "FloorLamp"), "Bedroom": ("DeskLamp",)}
LAMP_STANDS = ("Desk", "SideTable", "CoffeeTable", "Dresser", "DiningTable")
