"""Classes of vLLM's registry that are not read, and the one that is read whose layers are most like theirs.

Source: the class that each one derives from or builds its layers of (vLLM 0.33.0, ``model_executor/models`` and
``models``). A refusal names it; the likeness of names alone would say Albert for Alice.
"""

from __future__ import annotations

import re
from typing import Final

NEAREST: Final = {
    "AliceAIForCausalLM": "Qwen3NextForCausalLM",
    "Alpamayo2Super": "Qwen3VLForConditionalGeneration",
    "BagelForConditionalGeneration": "Qwen2ForCausalLM",
    "BailingMoeV3VLForConditionalGeneration": "BailingMoeV3ForCausalLM",
    "BeeForConditionalGeneration": "LlavaOnevisionForConditionalGeneration",
    "BertSpladeSparseEmbeddingModel": "BertForMaskedLM",
    "BgeM3EmbeddingModel": "XLMRobertaModel",
    "ClefFlashForJointSchema": "Qwen3_5ForConditionalGeneration",
    "ClefOmniForJointSchema": "Qwen3OmniMoeForConditionalGeneration",
    "ColBERTJinaRobertaModel": "XLMRobertaModel",
    "ColBERTLfm2Model": "Lfm2ForCausalLM",
    "ColBERTModernBertModel": "ModernBertModel",
    "ColModernVBertForRetrieval": "ModernBertModel",
    "ColPaliForRetrieval": "PaliGemmaForConditionalGeneration",
    "ColQwen3": "Qwen3VLForConditionalGeneration",
    "ColQwen3_5": "Qwen3_5ForConditionalGeneration",
    "ColUltraVBertForRetrieval": "Idefics3ForConditionalGeneration",
    "Cosmos3ForConditionalGeneration": "Qwen3VLForConditionalGeneration",
    "D3ForSequenceClassification": "Qwen3_5ForConditionalGeneration",
    "DFlash2BeamDraftModel": "DFlash2DraftModel",
    "DFlashLagunaForCausalLM": "DFlashDraftModel",
    "DFlashQwen3XPressModel": "DFlashDraftModel",
    "DSparkV41DraftModel": "DeepseekV41ForCausalLM",
    "DeepseekV4ForConditionalGeneration": "DeepseekV4ForCausalLM",
    "DeepseekVLV2ForCausalLM": "DeepseekV2ForCausalLM",
    "DomynEdgeForCausalLM": "Qwen2ForCausalLM",
    "Eagle2_5_VLForConditionalGeneration": "InternVLChatModel",
    "EagleCohereForCausalLM": "CohereForCausalLM",
    "EagleDeepSeekMTPModel": "DeepseekV3ForCausalLM",
    "EagleLlama4ForCausalLM": "EagleLlamaForCausalLM",
    "EagleMiniCPMForCausalLM": "MiniCPMForCausalLM",
    "EagleMistralForCausalLM": "EagleLlamaForCausalLM",
    "EagleMistralLarge3ForCausalLM": "DeepseekV3ForCausalLM",
    "FireRedASR2ForConditionalGeneration": "Qwen2ForCausalLM",
    "FunASRForConditionalGeneration": "Qwen3ForCausalLM",
    "FunAudioChatForConditionalGeneration": "Qwen3ForCausalLM",
    "GLM4VForCausalLM": "ChatGLMModel",
    "Gemma4DSparkModel": "Gemma4AssistantForCausalLM",
    "Gemma4MTPModel": "Gemma4AssistantForCausalLM",
    "GteNewForSequenceClassification": "NewModel",
    "HF_ColBERT": "BertModel",
    "HfMoondream": "PhiForCausalLM",
    "InternS1ProForConditionalGeneration": "Qwen3VLMoeForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration": "Qwen3_5MoeForConditionalGeneration",
    "IsaacForConditionalGeneration": "Qwen3ForCausalLM",
    "JinaEmbeddingsV5Model": "Qwen3ForCausalLM",
    "JinaForRanking": "Qwen3ForCausalLM",
    "JinaVLForRanking": "Qwen2VLForConditionalGeneration",
    "K3DSparkModel": "KimiK3ForConditionalGeneration",
    "KananaVForConditionalGeneration": "LlamaForCausalLM",
    "KeyeVL1_5ForConditionalGeneration": "Qwen3ForCausalLM",
    "LiLiCorrDraftModel": "DFlash2DraftModel",
    "LlamaNemotronVLForSequenceClassification": "LlamaForCausalLM",
    "LlamaNemotronVLModel": "LlamaForCausalLM",
    "Llama_Nemotron_Nano_VL": "LlamaForCausalLM",
    "LlavaOnevision2ForConditionalGeneration": "LlavaOnevisionForConditionalGeneration",
    "LongcatFlashNgramForCausalLM": "LongcatFlashForCausalLM",
    "MiDashengLMModel": "Qwen2ForCausalLM",
    "ModernVBertModel": "ModernBertModel",
    "Moondream3ForCausalLM": "PhiForCausalLM",
    "MoonshotKimiaForCausalLM": "Qwen2ForCausalLM",
    "MossAudioModel": "Qwen3ForCausalLM",
    "MuseSparkDSparkModel": "MuseSparkForConditionalGeneration",
    "NVLM_D": "InternVLChatModel",
    "NemotronHPuzzleForCausalLM": "NemotronHForCausalLM",
    "NemotronH_Super_Omni_Reasoning_V3": "NemotronH_Nano_VL_V2",
    "NemotronParseForConditionalGeneration": "MBartForConditionalGeneration",
    "OpenAIPrivacyFilterForTokenClassification": "GptOssForCausalLM",
    "OpenPanguVLForConditionalGeneration": "PanguEmbeddedForCausalLM",
    "OpenVLAForActionPrediction": "LlamaForCausalLM",
    "OpsColQwen3Model": "Qwen3VLForConditionalGeneration",
    "Ovis": "Ovis2ForConditionalGeneration",
    "PanguProMoEV2ForCausalLM": "PanguEmbeddedForCausalLM",
    "PanguUltraMoEForCausalLM": "DeepseekV3ForCausalLM",
    "Param2MoEForCausalLM": "BailingMoeForCausalLM",
    "Phi4ForCausalLMV": "Phi3ForCausalLM",
    "PixtralForConditionalGeneration": "Mistral3ForConditionalGeneration",
    "Plamo3ForCausalLM": "Gemma3ForCausalLM",
    "Qwen3ASRForcedAlignerForTokenClassification": "Qwen3ASRForConditionalGeneration",
    "Qwen3VLNemotronEmbedModel": "Qwen3VLForConditionalGeneration",
    "Qwen3XPressModel": "DFlashDraftModel",
    "RForConditionalGeneration": "LlavaOnevisionForConditionalGeneration",
    "RadioMBartPrefixForCausalLM": "MBartForConditionalGeneration",
    "Rnj1ForCausalLM": "Gemma3ForCausalLM",
    "Step1ForCausalLM": "LlamaForCausalLM",
    "Step5ForCausalLM": "Step3p5ForCausalLM",
    "Step5ForConditionalGeneration": "Step3p7ForConditionalGeneration",
    "StepVLForConditionalGeneration": "Qwen3ForCausalLM",
    "VoyageQwen3BidirectionalEmbedModel": "Qwen3ForCausalLM",
}
"""The nearest class that is read, by the name of one that is not."""

PREDICTS: Final = re.compile(r"_?MTP(?:Model)?$")
"""Names that engines give to a model's own prediction layers; no config of a checkpoint has them."""

NO_CHECKPOINT: Final = re.compile(
    r"^Transformers(?:MultiModal)?(?:MoE)?(?:For\w+|EmbeddingModel)$|^ExtractHiddenStatesModel$"
)
"""Names that vLLM gives to itself: a class of transformers' that it has no code of its own for, or a probe."""
