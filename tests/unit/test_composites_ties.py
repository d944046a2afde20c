"""Whose word on ties counts where a composite's config and its text part both have one.

transformers 5.24 was asked: every class was built on the meta device with the four pairs of words, from its default config,
and its parameters were counted. All counts are those of the reader.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest
from huggingface_configs import STARTS

from kvreport.architectures import read_config

PAIRS: Final = ((True, True), (True, False), (False, True), (False, False))
"""Words of the whole and of the text part."""
TIED: Final = {
    "the whole's": (True, True, False, False),
    "either": (True, True, True, False),
    "the text part's": (True, False, True, False),
    "neither": (False, False, False, False),
}
EITHER: Final = """
BlipForConditionalGeneration FastVlmForConditionalGeneration Glm4vForConditionalGeneration
Glm4vMoeForConditionalGeneration GlmOcrForConditionalGeneration HunYuanVLForConditionalGeneration
Kosmos2ForConditionalGeneration LlavaForConditionalGeneration LlavaNextVideoForConditionalGeneration
LlavaOnevisionForConditionalGeneration MiniMaxM3SparseForConditionalGeneration
PaddleOCRVLForConditionalGeneration Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration
VideoLlama3ForConditionalGeneration
"""
INNER: Final = """
Blip2ForConditionalGeneration InstructBlipForConditionalGeneration
InstructBlipVideoForConditionalGeneration Kosmos2_5ForConditionalGeneration
Llama4ForConditionalGeneration VibeVoiceForConditionalGeneration
"""
NEITHER: Final = """
AudioFlamingo3ForConditionalGeneration Cosmos3EdgeForConditionalGeneration
Inkling2ForConditionalGeneration Inkling2LoopForConditionalGeneration InklingForConditionalGeneration
JanusForConditionalGeneration MllamaForConditionalGeneration Molmo2ForConditionalGeneration
MuseSparkForConditionalGeneration MusicFlamingoForConditionalGeneration
Nemotron3_5TranscribeForConditionalGeneration NemotronH_Omni_Reasoning_V3 OmniASRForConditionalGeneration
PPFormulaNetForConditionalGeneration Qwen2AudioForConditionalGeneration
VibeVoiceAsrForConditionalGeneration VoxtralForConditionalGeneration
"""
OUTER: Final = """
Apertus1p5ForConditionalGeneration AriaForConditionalGeneration AyaVisionForConditionalGeneration
Cohere2VisionForConditionalGeneration CohereCompassForConditionalGeneration
Cosmos3OmniForConditionalGeneration DeepseekOcr2ForConditionalGeneration
DeepseekVLForConditionalGeneration DeepseekVLHybridForConditionalGeneration
Dots3NoteForConditionalGeneration Emu3ForConditionalGeneration Ernie4_5_VLMoeForConditionalGeneration
Exaone4_5_ForConditionalGeneration FunAsrNanoForConditionalGeneration FuyuForCausalLM
Gemma3ForConditionalGeneration Gemma3nForConditionalGeneration Gemma4AssistantForCausalLM
Gemma4ForConditionalGeneration Gemma4UnifiedAssistantForCausalLM Gemma4UnifiedForConditionalGeneration
Glm5NextForConditionalGeneration GlmAsrForConditionalGeneration GotOcr2ForConditionalGeneration
Granite4VisionForConditionalGeneration GraniteDoclingForConditionalGeneration
GraniteSpeechForConditionalGeneration GraniteSpeechPlusForConditionalGeneration
HYV4VLForConditionalGeneration HyperCLOVAXVisionV2ForConditionalGeneration
Idefics2ForConditionalGeneration Idefics3ForConditionalGeneration InternVLForConditionalGeneration
Kimi_K25ForConditionalGeneration Lfm2VlForConditionalGeneration Lfm3VlForConditionalGeneration
LightOnOcrForConditionalGeneration LlavaNextForConditionalGeneration MiniCPMOcrForConditionalGeneration
MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration Mistral3ForConditionalGeneration
MistralLarge4ForConditionalGeneration MossTranscribeDiarizeForConditionalGeneration
MuseGlimmerForConditionalGeneration Ovis2ForConditionalGeneration PaliGemmaForConditionalGeneration
Pix2StructForConditionalGeneration QianfanOCRForConditionalGeneration
Qwen2_5OmniThinkerForConditionalGeneration Qwen3ASRForConditionalGeneration
Qwen3OmniMoeThinkerForConditionalGeneration Qwen3VLForConditionalGeneration
Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration
Qwen4ExpForConditionalGeneration SmolVLMForConditionalGeneration Step3p7ForConditionalGeneration
T5Gemma2ForConditionalGeneration T5GemmaForConditionalGeneration UnlimitedOcrForConditionalGeneration
VideoLlavaForConditionalGeneration VipLlavaForConditionalGeneration
VoxtralRealtimeForConditionalGeneration
"""
CASES: Final = [
    (name, whose)
    for text, whose in (
        (OUTER, "the whole's"),
        (EITHER, "either"),
        (INNER, "the text part's"),
        (NEITHER, "neither"),
    )
    for name in text.split()
]
IN_DECODER: Final = ("T5GemmaForConditionalGeneration", "T5Gemma2ForConditionalGeneration")


WHOLE: Final = """
AyaVisionForConditionalGeneration Cohere2VisionForConditionalGeneration Dots3NoteForConditionalGeneration
Ernie4_5_VLMoeForConditionalGeneration Exaone4_5_ForConditionalGeneration Gemma3nForConditionalGeneration
Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration Glm5NextForConditionalGeneration Granite4VisionForConditionalGeneration
HYV4VLForConditionalGeneration Idefics3ForConditionalGeneration Kimi_K25ForConditionalGeneration
Lfm2VlForConditionalGeneration MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
MistralLarge4ForConditionalGeneration PaliGemmaForConditionalGeneration
Qwen2_5OmniThinkerForConditionalGeneration Qwen3OmniMoeThinkerForConditionalGeneration
Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration
Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration SmolVLMForConditionalGeneration
"""
"""Classes of which transformers 5.24 ties or does not tie by the default of the whole, whatever the text part alone says."""
FIRST: Final = ("InternVLForConditionalGeneration", "Mistral3ForConditionalGeneration")
"""Classes whose releases were saved before transformers 5, without its default: the text part's word counts in any case."""


def has_head(name: str, outer: bool | None, inner: bool | None, *, saved_by: str = "5.24.0") -> bool:
    config: dict[str, Any] = {"architectures": [name], **copy.deepcopy(STARTS.get(name, {}))}
    text = config.setdefault("decoder" if name in IN_DECODER else "text_config", {})
    config["tie_word_embeddings"], text["tie_word_embeddings"] = outer, inner
    config["transformers_version"] = saved_by
    model = read_config(config, assume_defaults=True)
    # A head of one row is a score, not a table of words.
    return any(row.component == "output_head" and row.shape[0] > 1 for row in model.weights)


@pytest.mark.parametrize(("name", "whose"), CASES)
def test_the_word_that_counts_is_that_of_the_class(name: str, whose: str) -> None:
    tied = tuple(not has_head(name, outer, inner) for outer, inner in PAIRS)
    assert tied == TIED[whose]


@pytest.mark.parametrize("name", WHOLE.split())
def test_the_default_of_the_whole_counts_where_only_the_text_part_has_a_word(name: str) -> None:
    unstated = has_head(name, None, None)
    assert [has_head(name, None, inner) for inner in (True, False)] == [unstated, unstated]


@pytest.mark.parametrize(
    "name",
    [
        *FIRST,
        "AyaVisionForConditionalGeneration",
        "Gemma3nForConditionalGeneration",
        "Granite4VisionForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
    ],
)
def test_the_text_part_counts_where_transformers_4_saved_the_config(name: str) -> None:
    assert [has_head(name, None, inner, saved_by="4.57.1") for inner in (True, False)] == [False, True]
