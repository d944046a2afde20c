"""Running a small model of any class once, for its cache."""

from __future__ import annotations

from typing import Any

from kvreport.catalog.model import Model


def reading(model: Model, tokens: int) -> Model:
    """Return the model with encoders that read so many tokens, as the run gives them."""
    layers = tuple(
        group.model_copy(
            update={
                "caches": tuple(
                    cache.model_copy(update={"encoder_tokens": tokens}) if cache.kind == "cross" else cache
                    for cache in group.caches
                )
            }
        )
        for group in model.layers
    )
    return model.model_copy(update={"layers": layers})


def run(net: Any, ids: Any, settings: Any) -> tuple[Any, int]:  # noqa: ANN401 - a model, token ids, its config
    """Return the cache of one prompt, and how many tokens an encoder read for it.

    Without an encoder the run has no image to read, and layers that read one keep nothing.
    """
    if getattr(settings, "is_encoder_decoder", False):
        return _run_both(net, ids, settings)
    try:
        found = net(input_ids=ids, use_cache=True)
    except (TypeError, ValueError, NotImplementedError):
        inner = _decoder(net)
        if inner is None:
            raise
        found = inner(input_ids=ids, use_cache=True)
    # Classes of states alone call theirs otherwise.
    return next(
        (found[name] for name in ("past_key_values", "cache_params", "state") if name in found), None
    ), 0


def _run_both(net: Any, ids: Any, settings: Any) -> tuple[Any, int]:  # noqa: ANN401 - as above
    import torch

    length = ids.shape[1]
    if net.main_input_name == "input_ids":
        channels = getattr(getattr(settings, "decoder_config", None), "num_channels", None)
        heard = ids[..., None].expand(-1, -1, channels) if channels else ids  # Dia speaks in several at once
        boxes = {"bbox": torch.zeros(1, length, 4, dtype=net.dtype)} if settings.model_type == "udop" else {}
        found = net(input_ids=ids, decoder_input_ids=heard, use_cache=True, **boxes)
        return found.past_key_values, length
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    # Sounds and images: what their encoder gives out, made up; the decoder keeps as many keys of it.
    width = next(
        getattr(part, name)
        for part in (settings.get_text_config(decoder=True), settings)
        for name in ("hidden_size", "d_model")
        if hasattr(part, name)
    )
    states = torch.zeros(1, length, width, dtype=net.dtype)
    given = BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=states)
    given.attention_mask = None
    return net(encoder_outputs=given, decoder_input_ids=ids, use_cache=True).past_key_values, length


def _decoder(net: Any) -> Any:  # noqa: ANN401 - as above
    """Return the language model within a model that asks for an image or a sound, or None."""
    if hasattr(net, "thinker"):
        return net.thinker.model
    for holder in (net, getattr(net, "model", None)):
        for name in ("language_model", "text_decoder", "text_model"):
            inner = getattr(holder, name, None)
            if inner is not None:
                return inner
    return None
