"""search-worlds: the optimum by exhaustive search, scripted policies, the closed vocabulary."""

from __future__ import annotations

import pytest

from benchmarks.search_qa import make, notes, worlds
from benchmarks.search_qa.episode import Episode
from benchmarks.search_qa.retrieval.base import Retriever


@pytest.fixture(scope="module")
def benchmark():
    return make(data="search-worlds")


@pytest.fixture(scope="module")
def everything(benchmark):
    return [task for split in ("train", "eval") for task in benchmark.task_set(split).tasks]


def fewest_actions(task, rules, retriever: Retriever) -> int:
    """Breadth-first search over everything the menu offers: names known -> names known after one more search."""
    gold = task.payload["golden_answers"][0].lower()
    frontier, seen, depth = [()], set(), 0
    while frontier:
        depth += 1
        following = []
        for searches in frontier:
            episode = Episode(task, rules)
            for name in searches:
                query = episode.act(notes.search(name))
                episode.finish(retriever.search([query])[0])
            commands = episode.observation().admissible
            if notes.answer(gold) in commands:
                return depth
            names = [
                command.split(" ", 1)[1].rsplit(" ", 1)[0] for command in commands if command.startswith("<search>")
            ]
            for name in names:
                grown = tuple(sorted((*searches, name)))
                if name not in searches and grown not in seen:
                    seen.add(grown)
                    following.append((*searches, name))
        frontier = following if depth < rules.generations else []
    raise AssertionError(f"{task.id} cannot be answered")


def test_optimum_is_three_actions_or_two_where_one_search_shows_both_hops(benchmark, everything):
    retriever, rules = benchmark.retriever, benchmark.rules
    counts = [fewest_actions(task, rules, retriever) for task in everything]
    assert (counts.count(2), counts.count(3), len(counts)) == (60, 580, 640)


def test_the_expert_wins_every_question_in_at_most_three_actions(benchmark, everything):
    pool = benchmark.pool(len(everything))
    observations = pool.reset(everything)
    active, steps, won = dict(enumerate(observations)), 0, []
    while active:
        steps += 1
        commands = {slot: notes.expert(observation) for slot, observation in active.items()}
        assert all(command in active[slot].admissible for slot, command in commands.items())
        results = pool.step(list(commands.items()))
        won += [result.success for result in results if result.done]
        active = {slot: r.observation for slot, r in zip(commands, results, strict=True) if not r.done}
    assert won == [True] * 640
    assert steps == 3


def test_idle_and_careless_policies_score_low(benchmark, everything):
    pool = benchmark.pool(len(everything))
    observations = pool.reset(everything)
    for _ in range(4):
        results = pool.step([(slot, obs.admissible[0]) for slot, obs in enumerate(observations)])  # the same search
    assert all(result.done and not result.success for result in results)
    observations = pool.reset(everything)
    results = pool.step([(slot, obs.admissible[-1]) for slot, obs in enumerate(observations)])  # answers at once
    assert not any(result.success for result in results)
    pool.reset(everything)
    observations = [r.observation for r in pool.step([(s, o.admissible[0]) for s, o in enumerate(observations)])]
    results = pool.step([(slot, obs.admissible[-1]) for slot, obs in enumerate(observations)])  # a name from the page
    assert sum(result.success for result in results) < 0.1 * len(everything)


def test_no_passage_answers_a_question_by_itself():
    made = worlds.world()
    for split in made.questions.values():
        for question in split:
            kind, entity = worlds.read_question(question.text)
            own = next(p for p in made.corpus if p.title.lower() == entity)
            first, second = worlds.KINDS[kind][0]
            middle = made.facts[entity, first]
            assert question.golds[0].lower() == made.facts[middle, second]
            assert (entity, first, middle) in worlds.read_facts(own.text)
            assert question.golds[0].lower() not in (name for _, _, name in worlds.read_facts(own.text)) or kind == (
                "spouse_birthplace"  # two spouses may come from one city
            )


def test_passages_say_what_is_true_and_all_of_it():
    made = worlds.world()
    told = [fact for passage in made.corpus for fact in worlds.read_facts(passage.text)]
    assert {(subject, relation): object_ for subject, relation, object_ in told} == made.facts
    assert len(told) == len(made.facts)


def test_splits_share_no_question(benchmark):
    train, held_out = benchmark.task_set("train"), benchmark.task_set("eval")
    assert (len(train), len(held_out)) == (480, 160)
    assert not {task.payload["question"] for task in train.tasks} & {
        task.payload["question"] for task in held_out.tasks
    }
    assert {task.kind for task in held_out.tasks} == set(benchmark.kinds)
    assert train.hash == make(data="search-worlds").task_set("train").hash == "8df2d0d366545fd1"
    assert worlds.world().corpus.hash == "217acbbefcbb85c3"


def test_prompts_and_commands_stay_in_the_vocabulary(benchmark, everything):
    lexicon = set(benchmark.lexicon())
    views = list(benchmark.demonstrations(everything[::20], 1, 0))
    assert len(views) >= 2 * 32
    for view, command in views:
        for text in (benchmark.compact(view), *view.observation.admissible, command):
            assert set(benchmark.words(text)) <= lexicon, text
    last = views[-1][0]
    assert benchmark.compact(last).startswith("[task] ")
    assert benchmark.compact(last).endswith(" [act]")


@pytest.mark.parametrize("data", ["hotpotqa-mini", "2wiki-mini"])
def test_open_questions_have_no_closed_vocabulary(data):
    with pytest.raises(ValueError, match=r"needs a language model .*data=search-worlds"):
        make(data=data).lexicon()


def test_other_texts_are_no_world_questions():
    assert worlds.read_question("Who wrote Hamlet?") == ("", "")
    assert worlds.read_facts("Paris is the capital of France.") == []


@pytest.mark.parametrize("profile", ["search_r1", "verl_agent"])
def test_worlds_play_in_every_profile(profile):
    benchmark = make(data="search-worlds", profile=profile, generations=5)
    tasks = benchmark.task_set("eval", 20).tasks
    ends = {}
    for view, command in benchmark.demonstrations(tasks, 1, 0):
        ends[view.observation.goal] = command
    golds = {task.payload["question"]: task.payload["golden_answers"][0].lower() for task in tasks}
    assert ends == {question: notes.answer(gold) for question, gold in golds.items()}
