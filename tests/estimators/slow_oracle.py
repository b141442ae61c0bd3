"""The six estimators once more, as plain loops over dictionaries that follow the papers' equations word for word.

Slow and obvious on purpose. Values are found by Gaussian elimination in fractions, distances by relaxing until nothing
changes, reached sets by walking them. Shares no code with the package.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

EPS = 1e-6


def slow_estimate(name, rows, success_reward, **options):
    """Advantages in the order of `rows`, a list of dictionaries with the batch's columns."""
    settings = {"normalization": "mean_std", "baseline_over": "trajectories", "invalid_action_penalty": 0.1}
    settings |= DEFAULTS[name] | options
    result = [0.0] * len(rows)
    for members in _pools(range(len(rows)), lambda i: rows[i]["group"]).values():
        group = _sorted_group(rows, members)
        for place, value in zip(group["index"], ESTIMATORS[name](group, success_reward, settings), strict=True):
            result[place] = value
    return result


def _sorted_group(rows, members):
    """One task group: trajectories as lists of rows in time order, flattened one after another."""
    trajectories = _pools(members, lambda i: rows[i]["trajectory"])
    index = [i for t in trajectories.values() for i in sorted(t, key=lambda i: rows[i]["step"])]
    flat = [dict(rows[i]) for i in index]
    for row in flat:
        row["T"] = len(trajectories[row["trajectory"]])
        row["last"] = row["step"] == row["T"] - 1
    return {"index": index, "rows": flat, "lengths": [len(t) for t in trajectories.values()]}


def _pools(items, key):
    pools = defaultdict(list)
    for item in items:
        pools[key(item)].append(item)
    return pools


def _normalize(values, how, lone_sign=False):
    n = len(values)
    if n == 1:
        return [values[0] / (abs(values[0]) + EPS) if lone_sign else 0.0]
    mean = math.fsum(values) / n
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    if std <= 1e-12 * max(abs(x) for x in values):
        return [0.0] * n
    return [(x - mean) / (std + EPS) if how == "mean_std" else x - mean for x in values]


def _by_pool(values, keys, how, lone_sign=False):
    result = [0.0] * len(values)
    for members in _pools(range(len(values)), lambda i: keys[i]).values():
        for i, x in zip(members, _normalize([values[i] for i in members], how, lone_sign), strict=True):
            result[i] = x
    return result


def _states(group):
    return [row["state"] for row in group["rows"]]


def _episode(group, reward, s):
    rows, p = group["rows"], s["invalid_action_penalty"]
    if s["baseline_over"] == "steps":
        return _normalize([reward * row["success"] - p * (not row["valid"]) for row in rows], s["normalization"])
    trajectories = list(_pools(rows, lambda row: row["trajectory"]).values())
    returns = [reward * t[0]["success"] - p * sum(not row["valid"] for row in t) for t in trajectories]
    normalized = _normalize(returns, s["normalization"])
    return [a for a, t in zip(normalized, trajectories, strict=True) for _ in t]


def _grpo(group, reward, s):
    return _episode(group, reward, s)


def _gigpo(group, reward, s):
    rows, scores = group["rows"], []
    for i, row in enumerate(rows):
        later = range(row["T"] - row["step"])
        g = math.fsum(s["gamma"] ** k * rows[i + k]["reward"] for k in later)
        scores.append(g - s["invalid_action_penalty"] * (not row["valid"]))
    step = _by_pool(scores, _states(group), s["normalization"])
    return [e + s["step_weight"] * a for e, a in zip(_episode(group, reward, s), step, strict=True)]


def _g2po(group, reward, s):
    rows = group["rows"]
    own = [s["gamma"] ** (row["T"] - row["step"]) * reward * row["success"] for row in rows]
    visits = _pools(range(len(rows)), lambda i: rows[i]["state"])
    value = {state: math.fsum(own[i] for i in members) / len(members) for state, members in visits.items()}
    here = [value[row["state"]] for row in rows] if s["group_aggregation"] else own
    after = [reward * row["success"] if row["last"] else here[i + 1] for i, row in enumerate(rows)]
    penalized = [v - s["invalid_action_penalty"] * (not row["valid"]) for v, row in zip(after, rows, strict=True)]
    node = _by_pool(penalized, _states(group), s["normalization"])
    edge = _normalize([b - a for a, b in zip(here, after, strict=True)], s["normalization"])
    step = [n * s["node_centric"] + e * s["edge_centric"] for n, e in zip(node, edge, strict=True)]
    return [e + s["step_weight"] * a for e, a in zip(_episode(group, reward, s), step, strict=True)]


SUCCESS, FAILURE = ("sink", "success"), ("sink", "failure")


def _targets(rows, failures_too):
    def target(row):
        if row["last"] and row["success"]:
            return SUCCESS
        return FAILURE if row["last"] and failures_too else row["next_state"]

    return [target(row) for row in rows]


def _distances(edges, goal):
    """Fewest edges to the goal for the nodes that reach it."""
    distance, changed = {goal: 0}, True
    while changed:
        changed = False
        for u, v in edges:
            if v in distance and distance[v] + 1 < distance.get(u, math.inf):
                distance[u], changed = distance[v] + 1, True
    return distance


def _graphgpo(group, reward, s):
    rows = group["rows"]
    target = _targets(rows, failures_too=False)
    distance = _distances(list(zip(_states(group), target, strict=True)), SUCCESS)
    far = max(distance.values()) + 1
    scores = []
    for row, v in zip(rows, target, strict=True):
        exponent = distance.get(v, far)
        if s["progress"]:
            exponent += 1 - distance.get(row["state"], far)
        scores.append(reward * s["omega"] ** exponent - s["invalid_action_penalty"] * (not row["valid"]))
    step = _by_pool(scores, _states(group), s["normalization"])
    episode = _episode(group, reward, s)
    return [s["episode_weight"] * e + s["step_weight"] * a for e, a in zip(episode, step, strict=True)]


def _solve(edges, fixed, gamma):
    """V(u) = gamma * mean V(v) over raw edges, V fixed at sinks: elimination in exact fractions."""
    leaving = _pools([e for e in edges if e[0] not in fixed], lambda e: e[0])
    unknown = list(leaving)
    gamma = Fraction(gamma)
    system = {}
    for u in unknown:
        equation, constant = defaultdict(Fraction, {u: Fraction(1)}), Fraction(0)
        for _, v in leaving[u]:
            share = gamma / len(leaving[u])
            if v in leaving:
                equation[v] -= share
            else:
                constant += share * Fraction(fixed.get(v, 0))
        system[u] = (equation, constant)
    return {node: float(value) for node, value in ({**_eliminate(unknown, system), **fixed}).items()}


def _eliminate(unknown, system):
    for k, u in enumerate(unknown):
        equation, constant = system[u]
        for w in unknown[k + 1 :]:
            other, other_constant = system[w]
            factor = other.pop(u, Fraction(0)) / equation[u]
            if factor:
                for v in unknown[k + 1 :]:
                    other[v] -= factor * equation[v]
                system[w] = (other, other_constant - factor * constant)
    value = {}
    for u in reversed(unknown):
        equation, constant = system[u]
        value[u] = (constant - sum(equation[v] * value[v] for v in value)) / equation[u]
    return value


def slow_potential(states, target, s):
    """Phi by node; with power: in the power's own scale, or by distances when it is infinite."""
    edges = list(zip(states, target, strict=True))
    power = float(s["power"])
    if math.isinf(power):
        distance = _distances(edges, SUCCESS)
        return {u: s["gamma"] ** distance[u] if u in distance else 0.0 for e in edges for u in e}
    scaled = _solve(edges, {SUCCESS: 1, FAILURE: 0}, Fraction(s["gamma"] ** power))
    return {u: x ** (1 / power) for u, x in scaled.items()}


def _graphhca(group, reward, s):
    target = _targets(group["rows"], failures_too=True)
    phi = slow_potential(_states(group), target, s)

    def psi(u):
        return math.log(max(phi.get(u, 0.0), s["floor"]))

    credit = [psi(v) - psi(u) for u, v in zip(_states(group), target, strict=True)]
    step = _by_pool(credit, _states(group), s["normalization"])
    episode = _episode(group, reward, s)
    return [s["episode_weight"] * e + s["step_weight"] * a for e, a in zip(episode, step, strict=True)]


def slow_td(group, s):
    """Transitions and their TD residuals."""
    rows = group["rows"]
    if s["sinks"] == "dedicated":
        target, fixed = _targets(rows, failures_too=True), {SUCCESS: 1, FAILURE: 0}
    else:
        target = [row["next_state"] for row in rows]
        ends = _pools([row for row in rows if row["last"]], lambda row: row["next_state"])
        fixed = {u: Fraction(sum(row["success"] for row in e), len(e)) for u, e in ends.items()}
    edges = list(zip(_states(group), target, strict=True))
    value = _solve(edges, fixed, s["gamma"])
    return edges, [s["gamma"] * value.get(v, 0.0) - value[u] for u, v in edges]


def slow_lookahead(group, edges, td, s):
    """The terms k >= 1 of Graph GAE, reached sets walked for each row."""
    result = []
    for row, (_, start) in zip(group["rows"], edges, strict=True):
        reached, total = {start}, 0.0
        for k in range(1, row["T"] - row["step"]):
            out = [i for i, (u, _) in enumerate(edges) if u in reached]
            if not out:
                break
            total += (s["gamma"] * s["gae_lambda"]) ** k * math.fsum(td[i] for i in out) / len(out)
            reached = {edges[i][1] for i in out}
        result.append(total)
    return result


def _graft(group, reward, s):
    edges, td = slow_td(group, s)
    ahead = slow_lookahead(group, edges, td, s)
    p = s["invalid_action_penalty"] / reward
    values = [a + b - p * (not row["valid"]) for a, b, row in zip(td, ahead, group["rows"], strict=True)]
    return _by_pool(values, _states(group), s["normalization"], lone_sign=True) if s["normalize"] else values


ESTIMATORS = {
    "grpo": _grpo,
    "gigpo": _gigpo,
    "graphgpo": _graphgpo,
    "g2po": _g2po,
    "graphhca": _graphhca,
    "graft": _graft,
}
DEFAULTS = {
    "grpo": {},
    "gigpo": {"gamma": 0.95, "step_weight": 1.0},
    "graphgpo": {"omega": 0.1, "progress": False, "step_weight": 1.0, "episode_weight": 1.0},
    "g2po": {
        "gamma": 0.95,
        "step_weight": 1.0,
        "node_centric": True,
        "edge_centric": True,
        "group_aggregation": True,
    },
    "graphhca": {"gamma": 0.95, "floor": 1e-2, "power": 1.0, "step_weight": 1.0, "episode_weight": 1.0},
    "graft": {"gamma": 0.99, "gae_lambda": 0.95, "sinks": "merged", "normalize": True},
}


def random_rows(rng, groups=2, trajectories=4, states=6, horizon=8):
    """Rows of random walks over few states: revisits, self-loops, shared ends, invalid actions."""
    rows = []
    for g in range(groups):
        for t in range(int(rng.integers(1, trajectories + 1))):
            steps = int(rng.integers(1, horizon + 1))
            walk = [f"s{n}" for n in rng.integers(states, size=steps + 1)]
            success = bool(rng.random() < 0.5)
            for i, (u, v) in enumerate(pairwise(walk)):
                solved_here = success and i == steps - 1
                rows.append(
                    {
                        "group": f"g{g}",
                        "trajectory": t,
                        "step": i,
                        "state": u,
                        "action": v,
                        "next_state": v,
                        "valid": bool(rng.random() < 0.8),
                        "reward": 10.0 * solved_here,
                        "success": success,
                    }
                )
    return rows
