"""ALFWorld's engine with its costly parts done once: games, their states, and a few planner libraries.

The rules are Fast Downward's, through the library textworld ships; the texts come from ALFWorld's grammar, derived by
textworld. What differs from `PddlEnv` is when things are computed: a game is translated once, the command of an
operator is written once, and a state that was left can be returned to, by loading the game (1.3 ms) and applying the
operators that led there. `tests/alfworld` compares every output with the stock engine.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.alfworld import caches, upstream
from benchmarks.alfworld.game_data import BLANK, GameData

NOTHING = "Nothing happens."


class Node:
    """One state of a game.

    changed     facts that differ from the initial state, as far as anything reads them: what the state is
    path        operator numbers that lead here from the initial state
    operators   command -> (operator number, number of its effects), as the engine would choose it
    admissible  the commands, sorted; the engine's own list, `help` included
    edges       command -> (next node, feedback), filled by the transition memo
    """

    __slots__ = ("admissible", "changed", "edges", "key", "operators", "path", "won")

    def __init__(
        self, changed: frozenset[Any], path: tuple[int, ...], operators: dict[str, tuple[int, int]], won: bool, key: str
    ) -> None:
        self.changed = changed
        self.path = path
        self.operators = operators
        self.admissible = tuple(sorted(operators))
        self.won = won
        self.key = key
        self.edges: dict[str, tuple[Node, str]] = {}


class Engine:
    """One planner library and the state it stands at. Not for use from a second thread."""

    def __init__(self) -> None:
        self.library = upstream.fresh_library()
        self.game: Game | None = None
        self.node: Node | None = None

    def place(self, game: Game, node: Node) -> None:
        """Bring the library to a state of a game."""
        if self.node is node:
            return
        self.game, self.node = game, None
        self.library.load_sas(game.sas)
        for number in node.path:
            self.library.apply_operator(number, game.scratch)
        self.node = node

    def follow(self, after: Node, number: int) -> None:
        """Apply an operator whose outcome is known."""
        if self.game is not None:
            self.node = None
            self.library.apply_operator(number, self.game.scratch)
            self.node = after


class Engines:
    """At most `count` engines of this process, made when needed; the least recently used one moves."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._engines: list[Engine] = []  # least recently used first

    def at(self, game: Game, node: Node) -> Engine:
        """An engine that stands at this state."""
        engine = next((engine for engine in self._engines if engine.node is node), None) or self._next()
        self._engines.remove(engine)
        self._engines.append(engine)
        engine.place(game, node)
        return engine

    def _next(self) -> Engine:
        """A new engine while there may be more, else the least recently used one."""
        if len(self._engines) < self._count:
            self._engines.append(Engine())
            return self._engines[-1]
        return self._engines[0]

    def follow(self, node: Node, after: Node, number: int) -> None:
        """Let the engine at `node`, if there is one, go along to the state that an operator leads to.

        It costs microseconds, and spares the restoring when the episode leaves what is remembered.
        """
        for engine in self._engines:
            if engine.node is node:
                engine.follow(after, number)
                return

    def spare(self) -> Any:
        """Some library, which loses its state."""
        if not self._engines:
            self._engines.append(Engine())
        engine = self._engines[0]
        engine.game = engine.node = None
        return engine.library


class Game:
    """One game: a deterministic graph of states, explored on demand.

    With `memo`, each (state, command) runs the engine once and equal states are one `Node`; without, every step runs
    it. Both give the stock engine's outputs. Build it through `Games`.
    """

    def __init__(self, data: GameData, logic: Any, engines: Engines, memo: bool) -> None:
        from textworld.envs.pddl.logic import Atom, PddlState

        self.data, self.engines, self.memo = data, engines, memo
        self._atom = Atom
        self._logic = logic
        self._state = PddlState(engines.spare(), data.problem, logic)
        self.sas: bytes = self._state.sas.encode()
        self.scratch = (Atom * 16)()  # the library writes an operator's effects there while states are replayed
        self._planning: bytes | None = None
        self._entities = _entities(self._state)
        self._read, self._dynamic = read_predicates(self._state.task, data.grammar)
        self._state.task = self._state.sas = None  # large, and read no more
        self._current: frozenset[Any] = frozenset()  # what the text state stands at, as in Node.changed
        self._commands: dict[int, tuple[str, Any, str]] = {}
        self._nodes: dict[frozenset[Any], Node] = {}
        self.root = self._root()
        self.intro: str = self._derive("#intro#", {}).replace(BLANK, data.sentence)

    def _root(self) -> Node:
        library = self.engines.spare()
        library.load_sas(self.sas)
        return self._node(frozenset(), (), library)

    @property
    def states(self) -> int:
        """How many states the memo holds."""
        return len(self._nodes)

    def forget(self) -> None:
        """Empty the memo. Nodes that episodes stand at go on working."""
        self._nodes.clear()
        self.root.edges.clear()

    def step(self, node: Node, command: str) -> tuple[Node, str]:
        """(next state, feedback) of a command. One that is not admissible changes nothing."""
        command = command.strip()
        if command not in node.operators:
            return node, NOTHING
        known = node.edges.get(command)
        if known is None:
            with caches.applied():
                known = self._run(node, command)
            if self.memo:
                node.edges[command] = known
        elif known[0] is not node:
            self.engines.follow(node, known[0], node.operators[command][0])
        return known

    def plan(self, node: Node) -> list[str]:
        """Fast Downward's plan from a state, as commands; [] when it finds none or the game is won."""
        if node.won:
            return []
        if self._planning is None:
            self._planning = caches.planning_task(self.data.domain, self.data.problem)
        with caches.applied():
            engine = self.engines.at(self, node)
            engine.library.load_sas_replan(self._planning)
            self._state.downward_lib = engine.library
            commands = self._state.replan(self._entities)
            engine.game = engine.node = None
        return [" ".join(command.split()) for command in commands]

    def _run(self, node: Node, command: str) -> tuple[Node, str]:
        engine = self.engines.at(self, node)
        number, count = node.operators[command]
        effects = (self._atom * count)()
        engine.node = None  # until the new state is known
        engine.library.apply_operator(number, effects)
        self._move_text(node.changed)
        changed = self._apply_text(atom.get_fact(self._state.name2type) for atom in effects)
        _, mapping, feedback_rule = self._commands[number]
        feedback = self._derive(feedback_rule, mapping)
        after = self._nodes.get(changed) if self.memo else None
        if after is None:
            after = self._node(changed, (*node.path, number), engine.library)
        engine.node = after
        return after, feedback

    def _node(self, changed: frozenset[Any], path: tuple[int, ...], library: Any) -> Node:
        """The state that `library` and the text stand at."""
        node = Node(changed, path, self._operators(library), bool(library.check_goal()), self._key())
        if self.memo:
            self._nodes[changed] = node
        return node

    def _operators(self, library: Any) -> dict[str, tuple[int, int]]:
        """Applicable operators by command; of equal commands the first, as the engine looks them up."""
        from fast_downward import Operator

        found = (Operator * library.get_applicable_operators_count())()
        library.get_applicable_operators(found)
        operators: dict[str, tuple[int, int]] = {}
        for operator in found:
            if operator.id not in self._commands:
                self._commands[operator.id] = self._describe(operator.name)
            if operator.nb_effect_atoms > len(self.scratch):
                self.scratch = (self._atom * operator.nb_effect_atoms)()
            operators.setdefault(self._commands[operator.id][0], (operator.id, operator.nb_effect_atoms))
        return operators

    def _describe(self, operator: str) -> tuple[str, Any, str]:
        """(command, mapping, feedback rule) of an operator. Commands depend on facts that never change."""
        from textworld.logic import Action, Placeholder, Variable

        name, *arguments = operator.split()
        action = Action(name=name, preconditions=[], postconditions=[])
        # a translated action may have parameters of its own after those of the operator
        parameters = zip(self._state._actions[name].parameters, arguments, strict=False)
        mapping = {Placeholder(p.name.strip("?"), p.type_name): Variable(arg, p.type_name) for p, arg in parameters}
        rules = self._logic.actions[name]
        action.mapping = mapping
        action.command_template = self._derive(rules.template, mapping)
        command = action.format_command({name: entity.name for name, entity in self._entities.items()})
        return command, mapping, rules.feedback_rule

    def _derive(self, rule: str, mapping: Any) -> str:
        context = {
            "state": self._state,
            "facts": [],  # the grammar asks the state
            "variables": {place.name: self._entities[variable.name] for place, variable in mapping.items()},
            "mapping": mapping,
            "entity_infos": self._entities,
        }
        return str(self._logic.grammar.derive(rule, context))

    def _move_text(self, changed: frozenset[Any]) -> None:
        """Bring the facts that texts are derived from to a state."""
        for fact in self._current ^ changed:
            self._toggle(fact)
        self._current = changed

    def _apply_text(self, effects: Iterable[Any]) -> frozenset[Any]:
        """Apply an operator's effects to these facts, as `PddlState.apply` does; returns what differs now."""
        changed = set(self._current)
        for effect in effects:
            if _plain(effect.name) not in self._read:
                continue
            for fact, present in ((effect.negate(), False), (effect, True)):
                if (fact in self._state._facts[fact.signature]) != present:
                    self._toggle(fact)
                    changed ^= {fact}
        self._current = frozenset(changed)
        return self._current

    def _toggle(self, fact: Any) -> None:
        facts = self._state._facts[fact.signature]
        if fact in facts:
            facts.discard(fact)
        else:
            facts.add(fact)

    def _key(self) -> str:
        return state_key(self._state._facts, self._dynamic)


def state_key(facts: Any, dynamic: frozenset[str]) -> str:
    """Hash of the true facts that actions change and something reads, 16 hex digits.

    Within one game it is the exact Markov state. `facts` maps signatures to sets of propositions.
    """
    true = sorted(
        f"{fact.name}({','.join(fact.names)})"
        for signature, known in facts.items()
        if signature.name in dynamic
        for fact in known
    )
    return hashlib.sha256("\n".join(true).encode()).hexdigest()[:16]


def _plain(name: str) -> str:
    return name.removeprefix("not_")


def _conditions(condition: Any) -> Iterator[str]:
    """Names of the predicates in a condition of a translated task."""
    if hasattr(condition, "predicate"):
        yield condition.predicate
    for part in getattr(condition, "parts", ()):
        yield from _conditions(part)


def read_predicates(task: Any, grammar: str) -> tuple[frozenset[str], frozenset[str]]:
    """(predicates that something reads, those of them that actions change).

    Read are: preconditions, goal, axioms, conditions of the text grammar, and what decides an effect on one of these.
    ALFWorld's `checked` and `ison` are not, so looking around does not make a new state. ValueError where an effect
    on a read predicate is conditional: the facts would not tell the state then.
    """
    effects = [effect for action in task.actions for effect in action.effects]
    read = {name for action in task.actions for name in _conditions(action.precondition)}
    read |= set(_conditions(task.goal))
    read |= {name for axiom in task.axioms for name in _conditions(axiom.condition)}
    read |= {_plain(name) for name in re.findall(r"(\w+)\(", grammar)}
    for effect in effects:
        if effect.literal.predicate in read and set(_conditions(effect.condition)):
            raise ValueError(
                f"the game's domain has a conditional effect on {effect.literal.predicate!r}, which the caches cannot "
                "follow; use the stock engine (caches=False)"
            )
    return frozenset(read), frozenset(read & {effect.literal.predicate for effect in effects})


def _entities(state: Any) -> dict[str, Any]:
    """Readable names, as `PddlEnv` and ALFWorld's `AlfredDemangler` give them: "cabinet 1", "sinkbasin 1".

    Within a class, numbers fall with the sorted internal names: the first name has the highest number.
    """
    from textworld.generator.game import EntityInfo

    entities = {v.name: EntityInfo(v.name, v.type) for fact in state.facts for v in fact.arguments}
    names = sorted(entities)
    counts: dict[str, int] = {}
    for name in names:
        counts[_class(name)] = counts.get(_class(name), 0) + 1
    for name in names:
        entity, kind = entities[name], _class(name)
        entity.definite, entity.indefinite = "the", "a"
        entity.name = f"{kind} {counts[kind]}" if "_bar_" in name else f"{name} "
        counts[kind] -= 1
    return entities


def _class(name: str) -> str:
    kind, mark, _ = name.partition("_bar_")
    return kind + "basin" if mark and "basin" in name else kind


class Games:
    """The games of this process, built when first played.

    Beyond `games` games or `states` remembered states (1.5 MB and 2.5 KB each) the least recently played games are
    dropped; episodes that are still in them go on.
    """

    def __init__(self, engines: int, games: int, states: int, memo: bool) -> None:
        self._engines, self._memo = Engines(engines), memo
        self._most_games, self._most_states = games, states
        self._games: OrderedDict[str, Game] = OrderedDict()
        self._logics: dict[tuple[str, str], Any] = {}

    def get(self, data: GameData) -> Game:
        """The game with this content."""
        game = self._games.pop(data.digest, None)
        if game is None:
            with caches.applied(), caches.no_collection():
                game = Game(data, self._logic(data), self._engines, self._memo)
        self._games[data.digest] = game
        self._shrink()
        return game

    def _shrink(self) -> None:
        while len(self._games) > self._most_games or (len(self._games) > 1 and self._too_many_states()):
            self._games.popitem(last=False)
            caches.forget_propositions()
        if self._too_many_states():
            next(iter(self._games.values())).forget()

    def _too_many_states(self) -> bool:
        return sum(game.states for game in self._games.values()) > self._most_states

    def _logic(self, data: GameData) -> Any:
        """The parsed grammar: one for all games, since the sentence is filled in later."""
        from textworld.envs.pddl.logic import GameLogic

        key = (data.domain, data.grammar)
        if key not in self._logics:
            self._logics[key] = GameLogic(domain=data.domain, grammar=data.grammar)
        return self._logics[key]
