"""Architectures of transformers in small configurations with random weights: one call of each.

A case names the model's class and configuration; `make` builds both with the same weights and
inputs each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers

Inputs = Callable[[], dict[str, torch.Tensor]]


class Case(NamedTuple):
    """One call of one model."""

    name: str
    family: str
    model: str  # a class of transformers
    config: str
    settings: dict[str, Any]
    inputs: Inputs

    def make(self) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """The model in evaluation mode, and the arguments of the call."""
        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.settings)
        model = getattr(transformers, self.model)(config).eval()
        return model, (), self.inputs()


CASES: list[Case] = []


def add(family: str, name: str, model: str, settings: dict[str, Any], inputs: Inputs) -> None:
    """One more case; the configuration's class has the model's prefix."""
    prefix = model
    for end in ("LMHeadModel", "MTModel", "Model", "ForCausalLM", "ForConditionalGeneration",
                "ForMaskedLM",
                "ForDepthEstimation", "ForPrediction"):  # fmt: skip
        prefix = prefix.removesuffix(end)
    config = "Gemma3TextConfig" if prefix == "Gemma3" else f"{prefix}Config"
    CASES.append(Case(name, family, model, config, settings, inputs))


# ---- inputs ----


def tokens() -> dict[str, torch.Tensor]:
    """Token ids."""
    return {"input_ids": torch.randint(3, 64, (2, 12))}


def masked_tokens() -> dict[str, torch.Tensor]:
    """Token ids with a mask that leaves the last ones of a row out."""
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0
    return {**tokens(), "attention_mask": mask}


def both_tokens() -> dict[str, torch.Tensor]:
    """Token ids of an encoder and of a decoder."""
    return {**masked_tokens(), "decoder_input_ids": torch.randint(3, 64, (2, 7))}


def image(size: int = 32, batch: int = 2) -> Inputs:
    """Pictures."""
    return lambda: {"pixel_values": torch.randn(batch, 3, size, size)}


def video(frames: int, size: int = 32) -> Inputs:
    """Moving pictures."""
    return lambda: {"pixel_values": torch.randn(1, frames, 3, size, size)}


def image_and_tokens(size: int = 32, length: int = 12) -> Inputs:
    """A picture and a text for each."""
    return lambda: {
        **image(size)(),
        "input_ids": torch.randint(3, 64, (2, length)),
        "attention_mask": torch.ones(2, length, dtype=torch.long),
    }


def wave(samples: int = 2000) -> Inputs:
    """Sound."""
    return lambda: {"input_values": torch.randn(2, samples)}


# ---- text ----

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}


def known(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what is None: common settings that a configuration does not have."""
    return {name: value for name, value in settings.items() if value is not None}


def text_encoder(name: str, model: str, inputs: Inputs = masked_tokens, **settings: Any) -> None:
    """An encoder of text."""
    add("text encoder", name, model, known({**SMALL, **settings}), inputs)


def decoder(name: str, model: str, inputs: Inputs = masked_tokens, **settings: Any) -> None:
    """A decoder of text: the first step of a generation."""
    add("text decoder", name, model, known({**GROUPED, **settings}), inputs)


text_encoder("albert", "AlbertModel", embedding_size=16)
text_encoder("bert", "BertModel")
text_encoder("big_bird", "BigBirdModel", attention_type="original_full")
text_encoder("camembert", "CamembertModel")
text_encoder("canine", "CanineModel", local_transformer_stride=32, downsampling_rate=2,
             num_hash_buckets=64, num_hash_functions=2)  # fmt: skip
text_encoder("convbert", "ConvBertModel", embedding_size=32)
text_encoder("deberta", "DebertaModel", relative_attention=True, pos_att_type=["c2p", "p2c"])
text_encoder("deberta_v2", "DebertaV2Model", relative_attention=True, pos_att_type=["c2p", "p2c"])
text_encoder("distilbert", "DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=64)
text_encoder("electra", "ElectraModel", embedding_size=16)
text_encoder("ernie", "ErnieModel")
text_encoder("esm", "EsmModel", position_embedding_type="rotary")
text_encoder("fnet", "FNetModel", tokens)
text_encoder("funnel", "FunnelModel", block_sizes=[1, 1], d_model=32, n_head=4, d_head=8,
             d_inner=64, num_decoder_layers=1, num_hidden_layers=None)  # fmt: skip
text_encoder("ibert", "IBertModel")
text_encoder("layoutlm", "LayoutLMModel")
text_encoder("lilt", "LiltModel", lambda: {**masked_tokens(), "bbox": torch.ones(2, 12, 4).long()},
             hidden_size=48)  # fmt: skip
text_encoder("longformer", "LongformerModel", attention_window=4)
text_encoder("luke", "LukeModel", entity_vocab_size=16, entity_emb_size=16)
text_encoder("megatron_bert", "MegatronBertModel")
text_encoder("mobilebert", "MobileBertModel", true_hidden_size=32, intra_bottleneck_size=32,
             embedding_size=32, num_feedforward_networks=2)  # fmt: skip
text_encoder("modernbert", "ModernBertModel")
text_encoder("mpnet", "MPNetModel")
text_encoder("nystromformer", "NystromformerModel", num_landmarks=12, segment_means_seq_len=12)
text_encoder("rembert", "RemBertModel", input_embedding_size=16, output_embedding_size=16)
text_encoder("roberta", "RobertaModel")
text_encoder("roc_bert", "RoCBertModel", shape_vocab_size=16, pronunciation_vocab_size=16)
text_encoder("roformer", "RoFormerModel", embedding_size=32)
text_encoder("splinter", "SplinterModel")
text_encoder("squeezebert", "SqueezeBertModel", embedding_size=32)
text_encoder("xlm", "XLMModel", emb_dim=32, n_layers=2, n_heads=4, n_words=64)
text_encoder("xlnet", "XLNetModel", d_model=32, n_layer=2, n_head=4, d_inner=64,
             max_position_embeddings=None)  # fmt: skip

decoder("biogpt", "BioGptForCausalLM")
decoder("bloom", "BloomForCausalLM", n_layer=2, n_head=4)
decoder("codegen", "CodeGenForCausalLM", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_ctx=64)
decoder("cohere", "CohereForCausalLM")
decoder("cohere2", "Cohere2ForCausalLM", sliding_window=8)
decoder("ctrl", "CTRLModel", n_embd=32, dff=64, n_layer=2, n_head=4)
decoder("exaone4", "Exaone4ForCausalLM", sliding_window=8)
decoder("falcon", "FalconForCausalLM", head_dim=None)
decoder("gemma", "GemmaForCausalLM")
decoder("gemma2", "Gemma2ForCausalLM", sliding_window=8)
decoder("gemma3_text", "Gemma3ForCausalLM", sliding_window=8)
decoder("glm", "GlmForCausalLM")
decoder("gpt2", "GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=64)
decoder("gpt_bigcode", "GPTBigCodeForCausalLM", n_embd=32, n_layer=2, n_head=4, n_positions=64)
decoder("gpt_neo", "GPTNeoForCausalLM", num_layers=2, num_heads=4, window_size=8,
        attention_types=[[["global", "local"], 1]])  # fmt: skip
decoder("gpt_neox", "GPTNeoXForCausalLM")
decoder("gptj", "GPTJForCausalLM", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
decoder("granite", "GraniteForCausalLM")
decoder("helium", "HeliumForCausalLM")
decoder("llama", "LlamaForCausalLM")
decoder("mistral", "MistralForCausalLM", sliding_window=8)
decoder("mpt", "MptForCausalLM", d_model=32, n_heads=4, n_layers=2, max_seq_len=64)
decoder("nemotron", "NemotronForCausalLM")
decoder("olmo", "OlmoForCausalLM")
decoder("olmo2", "Olmo2ForCausalLM")
decoder("opt", "OPTForCausalLM", ffn_dim=64, word_embed_proj_dim=32)
decoder("persimmon", "PersimmonForCausalLM")
decoder("phi", "PhiForCausalLM")
decoder("phi3", "Phi3ForCausalLM")
decoder("qwen2", "Qwen2ForCausalLM")
decoder("qwen3", "Qwen3ForCausalLM")
decoder("smollm3", "SmolLM3ForCausalLM")
decoder("stablelm", "StableLmForCausalLM")
decoder("starcoder2", "Starcoder2ForCausalLM")
decoder("xglm", "XGLMForCausalLM", d_model=32, ffn_dim=64, num_layers=2, attention_heads=4)

# ---- mixtures of experts ----


def experts(name: str, model: str, **settings: Any) -> None:
    """A decoder that chooses among experts."""
    mixture = {"num_experts_per_tok": 2, "num_local_experts": 4, "num_experts": 4,
               "moe_intermediate_size": 32}  # fmt: skip
    add("experts", name, model, {**GROUPED, **mixture, **settings}, tokens)


experts("dbrx", "DbrxForCausalLM", d_model=32, n_heads=4, n_layers=2, max_seq_len=64,
        attn_config={"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        ffn_config={"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2,
                    "hidden_size": 32})  # fmt: skip
experts("deepseek_v2", "DeepseekV2ForCausalLM", n_routed_experts=4, n_shared_experts=1, n_group=1,
        topk_group=1, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
        v_head_dim=8, first_k_dense_replace=1, num_key_value_heads=4)  # fmt: skip
experts("deepseek_v3", "DeepseekV3ForCausalLM", n_routed_experts=4, n_shared_experts=1, n_group=2,
        topk_group=1, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
        v_head_dim=8, first_k_dense_replace=1, num_key_value_heads=4)  # fmt: skip
experts("gpt_oss", "GptOssForCausalLM", sliding_window=8)
experts("granitemoe", "GraniteMoeForCausalLM")
experts("jetmoe", "JetMoeForCausalLM", kv_channels=8, num_key_value_heads=2)
experts("mixtral", "MixtralForCausalLM")
experts("olmoe", "OlmoeForCausalLM")
experts("phimoe", "PhimoeForCausalLM")
experts("qwen2_moe", "Qwen2MoeForCausalLM", shared_expert_intermediate_size=32)
experts("qwen3_moe", "Qwen3MoeForCausalLM")

# ---- state space and recurrent ----


def recurrent(name: str, model: str, **settings: Any) -> None:
    """A decoder with a state in the place of attention, or beside it."""
    add("state space", name, model, {**GROUPED, **settings}, tokens)


recurrent("bamba", "BambaForCausalLM", mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8,
          mamba_n_groups=1, attn_layer_indices=[1], mamba_chunk_size=4)  # fmt: skip
recurrent("falcon_h1", "FalconH1ForCausalLM", mamba_d_ssm=64, mamba_n_heads=8, mamba_d_head=8,
          mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=4)  # fmt: skip
recurrent("falcon_mamba", "FalconMambaForCausalLM", state_size=8)
recurrent("jamba", "JambaForCausalLM", attn_layer_period=2, attn_layer_offset=1, num_experts=2,
          expert_layer_period=2, expert_layer_offset=1, mamba_d_state=8, mamba_dt_rank=4,
          use_mamba_kernels=False)  # fmt: skip
recurrent("lfm2", "Lfm2ForCausalLM", layer_types=["conv", "full_attention"])
recurrent("mamba", "MambaForCausalLM", state_size=8)
recurrent("mamba2", "Mamba2ForCausalLM", num_heads=8, head_dim=8, state_size=8, n_groups=1,
          chunk_size=4)  # fmt: skip
recurrent("qwen3_next", "Qwen3NextForCausalLM", layer_types=["linear_attention", "full_attention"],
          linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8,
          linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
          shared_expert_intermediate_size=16)  # fmt: skip
recurrent("recurrent_gemma", "RecurrentGemmaForCausalLM", lru_width=32, attention_window_size=8,
          num_hidden_layers=3)  # fmt: skip
recurrent("rwkv", "RwkvForCausalLM", attention_hidden_size=32, context_length=64)
recurrent("zamba2", "Zamba2ForCausalLM", mamba_headdim=8, n_mamba_heads=8, mamba_d_state=8,
          mamba_ngroups=1, chunk_size=4, layers_block_type=["mamba", "hybrid"], num_mem_blocks=1,
          attention_head_dim=16, attention_hidden_size=64, adapter_rank=4)  # fmt: skip

# ---- encoder and decoder ----

TWO = {
    **SMALL,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "decoder_start_token_id": 2,
}
T5 = {**TWO, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}


def two(name: str, model: str, common: dict[str, Any] = TWO, **settings: Any) -> None:
    """An encoder of text with a decoder of text."""
    add("encoder-decoder", name, model, known({**common, **settings}), both_tokens)


two("bart", "BartForConditionalGeneration")
two("bigbird_pegasus", "BigBirdPegasusForConditionalGeneration", attention_type="original_full")
two("blenderbot", "BlenderbotForConditionalGeneration")
two("blenderbot_small", "BlenderbotSmallForConditionalGeneration")
two("led", "LEDForConditionalGeneration", attention_window=4, max_encoder_position_embeddings=64,
    max_decoder_position_embeddings=64)  # fmt: skip
two("longt5", "LongT5ForConditionalGeneration", T5, local_radius=4)
two("m2m_100", "M2M100ForConditionalGeneration")
two("marian", "MarianMTModel")
two("mbart", "MBartForConditionalGeneration")
two("mt5", "MT5ForConditionalGeneration", T5)
two("pegasus", "PegasusForConditionalGeneration")
two("pegasus_x", "PegasusXForConditionalGeneration", block_size=4, num_global_tokens=2)
two("plbart", "PLBartForConditionalGeneration")
two("prophetnet", "ProphetNetForConditionalGeneration", num_encoder_layers=2, num_decoder_layers=2,
    num_encoder_attention_heads=4, num_decoder_attention_heads=4, hidden_size=32,
    encoder_layers=None, decoder_layers=None, num_hidden_layers=None)  # fmt: skip
two("switch_transformers", "SwitchTransformersForConditionalGeneration", T5, num_experts=4,
    num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_decoder_layers=2)  # fmt: skip
two("t5", "T5ForConditionalGeneration", T5)
two("umt5", "UMT5ForConditionalGeneration", T5)

# ---- vision ----

PATCHES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def vision(name: str, model: str, inputs: Inputs | None = None, **settings: Any) -> None:
    """A model of pictures."""
    add("vision", name, model, settings, inputs or image())


def patches(name: str, model: str, inputs: Inputs | None = None, **settings: Any) -> None:
    """A transformer of a picture's patches."""
    vision(name, model, inputs, **{**PATCHES, **settings})


patches("beit", "BeitModel", use_relative_position_bias=True)
vision("bit", "BitModel", embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], num_groups=4)
vision("convnext", "ConvNextModel", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
vision("convnextv2", "ConvNextV2Model", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
vision("cvt", "CvtModel", embed_dim=[16, 32], num_heads=[1, 2], depth=[1, 2], patch_sizes=[7, 3],
       patch_stride=[4, 2], patch_padding=[2, 1], stride_kv=[2, 2], stride_q=[1, 1],
       mlp_ratio=[2.0, 2.0], attention_drop_rate=[0.0, 0.0], drop_rate=[0.0, 0.0],
       drop_path_rate=[0.0, 0.0],
       qkv_bias=[True, True], cls_token=[False, True], kernel_qkv=[3, 3], padding_kv=[1, 1],
       padding_q=[1, 1], qkv_projection_method=["dw_bn", "dw_bn"])  # fmt: skip
patches("deit", "DeiTModel")
patches("dinov2", "Dinov2Model")
patches("dinov2_with_registers", "Dinov2WithRegistersModel", num_register_tokens=2)
patches("dinov3_vit", "DINOv3ViTModel", num_register_tokens=2)
patches("dpt", "DPTForDepthEstimation", neck_hidden_sizes=[8, 16], fusion_hidden_size=16,
        out_indices=[1, 2], backbone_out_indices=[0, 1], reassemble_factors=[2, 1],
        is_hybrid=False)  # fmt: skip
vision("efficientnet", "EfficientNetModel", width_coefficient=0.25, depth_coefficient=0.25,
       image_size=32, hidden_dim=320)  # fmt: skip
vision("focalnet", "FocalNetModel", image_size=32, embed_dim=8, hidden_sizes=[8, 16], depths=[1, 1],
       focal_levels=[2, 2], focal_windows=[3, 3])  # fmt: skip
vision("glpn", "GLPNModel", hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 1, 1],
       num_attention_heads=[1, 2, 4, 4], decoder_hidden_size=16, inputs=image(64))  # fmt: skip
vision("hiera", "HieraModel", image_size=[64, 64], embed_dim=8, depths=[1, 1], num_heads=[1, 2],
       patch_size=[7, 7], patch_stride=[4, 4], patch_padding=[3, 3], num_query_pool=1,
       masked_unit_size=[4, 4], query_stride=[2, 2], inputs=image(64))  # fmt: skip
patches("ijepa", "IJepaModel")
vision("levit", "LevitModel", image_size=64, hidden_sizes=[16, 32, 48],
       num_attention_heads=[1, 2, 3],
       depths=[1, 1, 1], key_dim=[8, 8, 8], inputs=image(64))  # fmt: skip
vision("mobilenet_v1", "MobileNetV1Model", depth_multiplier=0.25)
vision("mobilenet_v2", "MobileNetV2Model", depth_multiplier=0.25)
vision("mobilevit", "MobileViTModel", hidden_sizes=[16, 24, 32],
       neck_hidden_sizes=[4, 8, 8, 16, 16, 16, 32],
       num_attention_heads=4, image_size=64, inputs=image(64))  # fmt: skip
vision("mobilevitv2", "MobileViTV2Model", image_size=64, width_multiplier=0.25, inputs=image(64))
vision("poolformer", "PoolFormerModel", hidden_sizes=[8, 16], depths=[1, 1], num_encoder_blocks=2,
       patch_sizes=[7, 3], strides=[4, 2], padding=[2, 1])  # fmt: skip
vision("pvt", "PvtModel", image_size=64, hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 1, 1],
       num_attention_heads=[1, 2, 4, 4], inputs=image(64))  # fmt: skip
vision("pvt_v2", "PvtV2Model", image_size=64, hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 1, 1],
       num_attention_heads=[1, 2, 4, 4], inputs=image(64))  # fmt: skip
vision(
    "regnet", "RegNetModel", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4
)
vision("resnet", "ResNetModel", embedding_size=8, hidden_sizes=[16, 32], depths=[2, 2])
vision("segformer", "SegformerModel", hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 1, 1],
       num_attention_heads=[1, 2, 4, 4], decoder_hidden_size=16, inputs=image(64))  # fmt: skip
vision("swiftformer", "SwiftFormerModel", embed_dims=[8, 16, 32, 32], depths=[1, 1, 1, 1],
       inputs=image(64))  # fmt: skip
vision("swin", "SwinModel", image_size=32, patch_size=2, embed_dim=8, depths=[2, 1],
       num_heads=[2, 4],
       window_size=4)  # fmt: skip
vision(
    "swin2sr", "Swin2SRModel", image_size=32, embed_dim=8, depths=[2], num_heads=[2], window_size=4
)
vision("swinv2", "Swinv2Model", image_size=32, patch_size=2, embed_dim=8, depths=[2, 1],
       num_heads=[2, 4], window_size=4)  # fmt: skip
patches("timesformer", "TimesformerModel", video(4), num_frames=4)
patches("videomae", "VideoMAEModel", video(4), num_frames=4, tubelet_size=2)
patches("vit", "ViTModel")
patches("vit_msn", "ViTMSNModel")
patches("vitdet", "VitDetModel", window_block_indices=[0], window_size=2)
patches("vivit", "VivitModel", video(4), num_frames=4, tubelet_size=[2, 8, 8])
patches("yolos", "YolosModel", num_detection_tokens=4, image_size=[32, 32])

# ---- vision and text ----

TEXT_PART = {**SMALL, "projection_dim": 16}
TOWERS = {"text_config": TEXT_PART, "vision_config": {**PATCHES, "projection_dim": 16},
          "projection_dim": 16}  # fmt: skip


def mixed(name: str, model: str, inputs: Inputs | None = None, **settings: Any) -> None:
    """A model of pictures and text."""
    add("vision and text", name, model, settings, inputs or image_and_tokens())


mixed("altclip", "AltCLIPModel", **TOWERS)
mixed("blip", "BlipModel", **TOWERS)
mixed("chinese_clip", "ChineseCLIPModel", **TOWERS)
mixed("clip", "CLIPModel", **TOWERS)
mixed("clipseg", "CLIPSegModel", **TOWERS)
mixed("git", "GitModel", **SMALL, vision_config=PATCHES)
mixed("groupvit", "GroupViTModel", text_config=TEXT_PART, projection_dim=16,
      projection_intermediate_dim=32,
      vision_config={**PATCHES, "depths": [1, 1], "num_group_tokens": [4, 0],
                     "num_output_groups": [4, 0], "num_hidden_layers": 2})  # fmt: skip
mixed("owlvit", "OwlViTModel", **TOWERS)
mixed("siglip", "SiglipModel", **TOWERS)
mixed("vilt", "ViltModel", **SMALL, image_size=32, patch_size=8)

# ---- speech ----

WAVES = {
    **SMALL,
    "conv_dim": [16, 16],
    "conv_stride": [5, 4],
    "conv_kernel": [10, 8],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 2,
    "do_stable_layer_norm": False,
}


def speech(name: str, model: str, inputs: Inputs | None = None, **settings: Any) -> None:
    """A model of sound."""
    add("speech", name, model, settings, inputs or wave())


def mel_and_tokens(bins: int, frames: int) -> Inputs:
    """Spectra, and the tokens of a decoder."""
    return lambda: {
        "input_features": torch.randn(2, bins, frames),
        "decoder_input_ids": torch.randint(3, 64, (2, 7)),
    }


speech("audio_spectrogram_transformer", "ASTModel",
       lambda: {"input_values": torch.randn(2, 32, 16)},
       **SMALL, num_mel_bins=16, max_length=32, patch_size=8, frequency_stride=8,
       time_stride=8)  # fmt: skip
speech("data2vec_audio", "Data2VecAudioModel", **WAVES)
speech("dac", "DacModel", lambda: {"input_values": torch.randn(1, 1, 512)}, encoder_hidden_size=8,
       downsampling_ratios=[2, 4], decoder_hidden_size=32, n_codebooks=2, codebook_size=16,
       codebook_dim=4, hidden_size=32)  # fmt: skip
speech("encodec", "EncodecModel", lambda: {"input_values": torch.randn(1, 1, 512)}, num_filters=4,
       hidden_size=16, upsampling_ratios=[4, 2], codebook_size=16, codebook_dim=16,
       num_lstm_layers=1,
       target_bandwidths=[24.0])  # fmt: skip
speech("hubert", "HubertModel", **WAVES)
speech("moonshine", "MoonshineForConditionalGeneration",
       lambda: {**wave(4000)(), "decoder_input_ids": torch.randint(3, 64, (2, 7))},
       **GROUPED, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
       encoder_num_attention_heads=4, decoder_num_attention_heads=4,
       encoder_num_key_value_heads=4, decoder_num_key_value_heads=4,
       decoder_start_token_id=1)  # fmt: skip
speech("sew", "SEWModel", **WAVES, squeeze_factor=2)
speech("sew_d", "SEWDModel", **WAVES, squeeze_factor=2)
speech("speech_to_text", "Speech2TextForConditionalGeneration",
       lambda: {"input_features": torch.randn(2, 32, 16),
                "decoder_input_ids": torch.randint(3, 64, (2, 7))},
       **TWO, input_feat_per_channel=16, conv_channels=32, max_source_positions=64,
       max_target_positions=64)  # fmt: skip
speech("unispeech", "UniSpeechModel", **WAVES)
speech("unispeech_sat", "UniSpeechSatModel", **WAVES)
speech("wav2vec2", "Wav2Vec2Model", **WAVES)
speech("wav2vec2_bert", "Wav2Vec2BertModel", lambda: {"input_features": torch.randn(2, 20, 16)},
       **SMALL, feature_projection_input_dim=16, output_hidden_size=32)  # fmt: skip
speech("wav2vec2_conformer", "Wav2Vec2ConformerModel", **WAVES)
speech("wavlm", "WavLMModel", **WAVES)
speech("whisper", "WhisperForConditionalGeneration", mel_and_tokens(16, 40), **TWO, num_mel_bins=16,
       max_source_positions=20, max_target_positions=64)  # fmt: skip

# ---- time series and decisions ----

SERIES = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "d_model": 16,
          "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
          "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
          "num_time_features": 1}  # fmt: skip


def series() -> dict[str, torch.Tensor]:
    """The past of some series and what is known of their time."""
    return {
        "past_values": torch.rand(2, 10),
        "past_time_features": torch.rand(2, 10, 1),
        "past_observed_mask": torch.ones(2, 10),
        "future_values": torch.rand(2, 4),
        "future_time_features": torch.rand(2, 4, 1),
    }


add("series", "time_series_transformer", "TimeSeriesTransformerModel", SERIES, series)
add("series", "informer", "InformerModel", SERIES, series)
add("series", "patchtst", "PatchTSTForPrediction",
    {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4,
     "d_model": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "ffn_dim": 32,
     "prediction_length": 4}, lambda: {"past_values": torch.randn(2, 16, 2)})  # fmt: skip
add("series", "patchtsmixer", "PatchTSMixerForPrediction",
    {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4,
     "d_model": 16, "num_layers": 2, "prediction_length": 4},
    lambda: {"past_values": torch.randn(2, 16, 2)})  # fmt: skip
add("series", "decision_transformer", "DecisionTransformerModel",
    {**SMALL, "state_dim": 4, "act_dim": 2, "n_layer": 2, "n_head": 4, "max_ep_len": 32,
     "n_positions": 64},
    lambda: {"states": torch.randn(2, 6, 4), "actions": torch.randn(2, 6, 2),
             "rewards": torch.randn(2, 6, 1), "returns_to_go": torch.randn(2, 6, 1),
             "timesteps": torch.arange(6).repeat(2, 1),
             "attention_mask": torch.ones(2, 6)})  # fmt: skip
