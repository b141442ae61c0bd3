"""Trajectory graphs as data and as pictures: `graph_view` makes a `GraphView`, `draw` writes it to a file."""

from __future__ import annotations

from analysis.graph_drawing import FORMATS, draw
from analysis.graph_model import Edge, GraphView, Node, graph_view, group_rows, telling_group

__all__ = ["FORMATS", "Edge", "GraphView", "Node", "draw", "graph_view", "group_rows", "telling_group"]
