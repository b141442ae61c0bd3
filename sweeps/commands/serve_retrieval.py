"""`creditbench serve-retrieval`."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 85


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "serve-retrieval", help="serve passages over HTTP, in the form of the published retrieval servers"
    )
    source = command.add_mutually_exclusive_group()
    source.add_argument(
        "--data", default="hotpotqa-mini", metavar="NAME", help="hotpotqa-mini, 2wiki-mini or search-worlds"
    )
    source.add_argument("--corpus", type=Path, metavar="FILE", help="JSON Lines of passages: id, contents")
    command.add_argument("--engine", choices=("bm25", "dense"), default="bm25", help="default: %(default)s")
    command.add_argument("--index", type=Path, metavar="FILE", help="faiss index of the corpus (dense)")
    command.add_argument("--index-mmap", action="store_true", help="leave the index on disk and map it")
    command.add_argument("--encoder", default="minilm", help="folder, hub name or minilm (dense; default: %(default)s)")
    command.add_argument("--host", default="127.0.0.1", help="default: %(default)s, this machine only")
    command.add_argument("--port", type=int, default=8000, help="0 takes a free one; default: %(default)s")
    command.add_argument("--topk", type=int, default=3, help="passages where a request names none")
    command.add_argument("--queue", type=int, default=256, help="requests that may wait; more get 503")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    for module in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"{module} is not installed; get it with: pip install -e '.[serve]'")
    for name, least, most in (("port", 0, 65_535), ("topk", 1, 100), ("queue", 1, 100_000)):
        value = getattr(arguments, name)
        if not least <= value <= most:
            raise UsageError(f"--{name} must be a whole number from {least} to {most}, got {value}")
    from benchmarks.search_qa.options import Options
    from benchmarks.search_qa.retrieval import engines, serving

    try:
        options = Options(
            data=arguments.data,
            corpus=str(arguments.corpus or ""),
            retriever=arguments.engine,
            index=str(arguments.index or ""),
            index_mmap=arguments.index_mmap,
            encoder=arguments.encoder,
            top_k=arguments.topk,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    address = serving.Address(arguments.host, arguments.port)
    return serving.serve(lambda: engines.build(options, "queries"), address, arguments.topk, arguments.queue)
