"""The built-in tiny policy network: a small Qwen2-style decoder whose head knows which commands are allowed.

A constrained prompt starts with a *menu*, the commands that the environment accepts now:

    <menu> go to cabinet 1 <or> take cup 2 from shelf 1 <end> ... compact prompt ... [act]

The network never attends to the menu. Its head reads it: after the words written so far, only words that continue
some command of the menu (or end it) keep their logit; all others get `FORBIDDEN`. Sampling and the log-probabilities
of the update therefore come from one and the same restricted distribution, and every stored row (prompt ids,
completion ids) can be scored again on its own. A prompt without a menu is not restricted.

Rows are packed without their menus and paddings before the decoder runs, and the vocabulary projection is computed at
the positions that are scored and nowhere else: on a CPU that is where a tiny policy's time would go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2Model
from transformers.generation import GenerationMixin
from transformers.models.qwen2.modeling_qwen2 import Qwen2PreTrainedModel
from transformers.utils import ModelOutput

FORBIDDEN = -1e9  # far below any logit, yet finite: p log p stays 0 in the entropy


class TinyPolicyConfig(Qwen2Config):
    """Qwen2's configuration plus the ids of the menu's tokens and of the token that opens the reply."""

    model_type = "creditbench_tiny"
    auto_map: ClassVar[dict[str, str]] = {}  # TRL asks for it when it loads a reference model

    menu_token_id: int = 3
    or_token_id: int = 4
    end_token_id: int = 5
    act_token_id: int = 6


class Menu:
    """The commands of one prompt as a prefix tree: `allowed(prefix)` are the ids that may come next."""

    def __init__(self, commands: list[tuple[int, ...]], eos: int):
        following: dict[tuple[int, ...], set[int]] = {}
        for command in commands:
            for cut, token in enumerate((*command, eos)):
                following.setdefault(command[:cut], set()).add(token)
        self._following = {prefix: np.array(sorted(ids)) for prefix, ids in following.items()}

    def allowed(self, prefix: tuple[int, ...]) -> np.ndarray | None:
        """Ids that continue `prefix` inside the menu; None where the prefix is no beginning of any command."""
        return self._following.get(prefix)


@lru_cache(maxsize=20_000)
def _read_menu(ids: tuple[int, ...], separator: int, eos: int) -> Menu:
    commands, start = [], 0
    for i, token in enumerate((*ids, separator)):
        if token == separator:
            commands.append(ids[start:i])
            start = i + 1
    return Menu([c for c in commands if c], eos)


@dataclass
class TinyPolicyOutput(ModelOutput):
    """`logits` [rows, length, vocabulary] without labels; with labels `loss` (mean negative log-likelihood of the
    scored tokens), `log_probs` and `entropy` [rows, length - 1], zero where nothing is scored."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    log_probs: Tensor | None = None
    entropy: Tensor | None = None


@dataclass
class _Packed:
    """Rows without menu and padding, aligned to the right. `position` maps an original column to its packed one."""

    ids: Tensor
    mask: Tensor
    position: Tensor
    menus: list[Menu | None]


class TinyPolicyForCausalLM(Qwen2PreTrainedModel, GenerationMixin):
    """A causal language model for the hub classes (`AutoModelForCausalLM`) and for TRL's trainer.

    `scoring_temperature` divides the logits of scored tokens, as the sampler does; the trainer sets it.
    """

    config_class = TinyPolicyConfig
    _tied_weights_keys: ClassVar = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: TinyPolicyConfig):
        super().__init__(config)
        self.model = Qwen2Model(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.scoring_temperature = 1.0
        self.post_init()

    # ------------------------------------------------------------------------------------------------ menus
    def _pack(self, input_ids: Tensor, attention_mask: Tensor | None) -> _Packed:
        config = self.config
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        first = (seen > 0).to(torch.int8).argmax(1, keepdim=True)
        has_menu = input_ids.gather(1, first) == config.menu_token_id  # menu words inside a reply are just words
        is_end = (input_ids == config.end_token_id) & (seen > 0)
        in_menu = has_menu & ((is_end.cumsum(1) == 0) | (is_end & (is_end.cumsum(1) == 1))) & (seen > 0)
        keep = (seen > 0) & ~in_menu
        counts = keep.sum(1)
        length = int(counts.max())
        order = torch.argsort(keep.to(torch.int8), dim=1, stable=True)[:, -length:]
        position = keep.cumsum(1) - 1 + (length - counts)[:, None]
        return _Packed(
            input_ids.gather(1, order), keep.gather(1, order).long(), position, self._menus(input_ids, in_menu)
        )

    def _menus(self, input_ids: Tensor, in_menu: Tensor) -> list[Menu | None]:
        rows, inside = input_ids.cpu().numpy(), in_menu.cpu().numpy()
        menus: list[Menu | None] = []
        for ids, mask in zip(rows, inside, strict=True):
            words = ids[mask]
            separator, eos = self.config.or_token_id, self.config.eos_token_id
            menus.append(_read_menu(tuple(words[1:-1].tolist()), separator, eos) if len(words) else None)
        return menus

    def _decode(self, packed: _Packed, **kwargs: Any) -> Any:
        positions = (packed.mask.cumsum(1) - 1).clamp(min=0)
        return self.model(input_ids=packed.ids, attention_mask=packed.mask, position_ids=positions, **kwargs)

    def _restriction(self, menus: list[Menu | None], prefixes: list[tuple[int, ...]], like: Tensor) -> Tensor:
        """[n, vocabulary]: 0 where a word may come next, else FORBIDDEN."""
        penalty = np.zeros((len(menus), self.config.vocab_size), dtype=np.float32)
        for row, (menu, prefix) in enumerate(zip(menus, prefixes, strict=True)):
            if menu is None:
                continue
            penalty[row] = FORBIDDEN
            allowed = menu.allowed(prefix)
            if allowed is not None:
                penalty[row, allowed] = 0.0
        return torch.from_numpy(penalty).to(device=like.device, dtype=like.dtype)

    def _head(self, hidden: Tensor, menus: list[Menu | None], prefixes: list[tuple[int, ...]]) -> Tensor:
        """Temperature-scaled, restricted logits of n positions: [n, hidden] -> [n, vocabulary]."""
        logits = self.lm_head(hidden) / self.scoring_temperature
        return logits + self._restriction(menus, prefixes, logits)

    # ------------------------------------------------------------------------------------------------ scoring
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        fused_lm_head: bool = False,
        num_items_in_batch: Tensor | int | None = None,
        **_: Any,
    ) -> TinyPolicyOutput:
        """Score `labels` (next-token labels in place, -100 = not scored), or give all logits when there are none.
        `fused_lm_head` is what TRL passes to models that score for themselves; it changes nothing here."""
        packed = self._pack(input_ids, attention_mask)
        hidden = self._decode(packed, use_cache=False).last_hidden_state
        if labels is None:
            scored = torch.ones_like(input_ids, dtype=torch.bool)
        else:
            scored = torch.zeros_like(input_ids, dtype=torch.bool)
            scored[:, :-1] = labels[:, 1:] != -100
        rows, columns = scored.nonzero(as_tuple=True)
        prefixes = self._prefixes(input_ids, rows, columns)
        menus = [packed.menus[r] for r in rows.tolist()]
        if labels is None:  # before [act] nothing is being chosen, so nothing is restricted
            menus = [m if p is not None else None for m, p in zip(menus, prefixes, strict=True)]
        at = packed.position[rows, columns].clamp(min=0)
        logits = self._head(hidden[rows, at], menus, [p or () for p in prefixes])
        if labels is None:
            return TinyPolicyOutput(logits=logits.view(*input_ids.shape, -1))
        return self._scored(logits, labels, rows, columns, num_items_in_batch)

    def _scored(self, logits: Tensor, labels: Tensor, rows: Tensor, columns: Tensor, items: Any) -> TinyPolicyOutput:
        log_softmax = logits.log_softmax(-1)
        chosen = log_softmax.gather(1, labels[rows, columns + 1][:, None])[:, 0]
        entropies = -(log_softmax.exp() * log_softmax).sum(-1)
        shape = (labels.size(0), labels.size(1) - 1)
        log_probs = logits.new_zeros(shape).index_put((rows, columns), chosen)
        entropy = logits.new_zeros(shape).index_put((rows, columns), entropies)
        loss = -chosen.sum() / (max(chosen.numel(), 1) if items is None else items)
        return TinyPolicyOutput(loss=loss, log_probs=log_probs, entropy=entropy)

    def _prefixes(self, input_ids: Tensor, rows: Tensor, columns: Tensor) -> list[tuple[int, ...] | None]:
        """Words of the reply up to and with each (row, column); None before the reply starts."""
        ids = input_ids.cpu().numpy()
        opened = (ids == self.config.act_token_id).argmax(1)
        found = (ids == self.config.act_token_id).any(1)
        out: list[tuple[int, ...] | None] = []
        for r, c in zip(rows.tolist(), columns.tolist(), strict=True):
            started = found[r] and c >= opened[r]
            out.append(tuple(ids[r, opened[r] + 1 : c + 1].tolist()) if started else None)
        return out

    # ------------------------------------------------------------------------------------------------ sampling
    @torch.no_grad()
    def generate(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, generation_config: Any = None, **kwargs: Any
    ) -> Tensor:
        """Prompts (left padded) [rows, length] -> prompts and replies [rows, length + at most max_new_tokens]. Rows
        that have ended are filled with the padding token. Reads max_new_tokens, do_sample and temperature."""
        settings = {**(generation_config.to_dict() if generation_config is not None else {}), **kwargs}
        limit, greedy = int(settings.get("max_new_tokens") or 16), not settings.get("do_sample", True)
        temperature = float(settings.get("temperature") or 1.0)
        packed = self._pack(input_ids, attention_mask)
        replies: list[list[int]] = [[] for _ in packed.menus]
        live = set(range(len(replies)))
        output = self._decode(packed, use_cache=True)
        mask = packed.mask
        for _ in range(limit):
            prefixes = [tuple(r) for r in replies]
            logits = self.lm_head(output.last_hidden_state[:, -1]) / temperature
            logits = logits + self._restriction(packed.menus, prefixes, logits)
            drawn = logits.argmax(-1) if greedy else torch.multinomial(logits.softmax(-1), 1)[:, 0]
            for row, token in enumerate(drawn.tolist()):
                if row in live:
                    replies[row].append(token)
                    if token == self.config.eos_token_id:
                        live.discard(row)
            if not live:
                break
            mask = torch.cat([mask, mask.new_ones(len(replies), 1)], 1)
            positions = mask.sum(1, keepdim=True) - 1
            output = self.model(
                input_ids=drawn[:, None], attention_mask=mask, position_ids=positions,
                past_key_values=output.past_key_values, use_cache=True,
            )  # fmt: skip
        width = max(len(r) for r in replies)
        filled = [r + [self.config.pad_token_id] * (width - len(r)) for r in replies]
        return torch.cat([input_ids, torch.tensor(filled, device=input_ids.device)], 1)


AutoConfig.register(TinyPolicyConfig.model_type, TinyPolicyConfig, exist_ok=True)
AutoModelForCausalLM.register(TinyPolicyConfig, TinyPolicyForCausalLM, exist_ok=True)
