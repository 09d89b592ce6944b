//! Bundles of tiny models, one for each kind of attention, feed-forward and storage, with weights that look random.

use std::path::{Path, PathBuf};

use sf_base::{
    Activation, Arch, DATA_ALIGN, Header, ITEM_ALIGN, Kind, Layer, Layout, Norm, Norms, PROLOGUE_BYTES,
    Pooling, PoolingKind, Rope, Source, Sum, Tensor, align, canonical, prologue, to_f16,
};

/// Tokens of the vocabulary.
pub(crate) const VOCAB: u32 = 64;

/// A model to be written.
pub(crate) struct Case {
    pub(crate) arch: Arch,
    /// Of matrices: of those that are read more than once in turn.
    pub(crate) layouts: Vec<Layout>,
    seed: u64,
    biases: bool,
}

fn arch(family: &str) -> Arch {
    let rope = |base: f64| Rope {
        inv_freq: (0..8).map(|pair| base.powf(-f64::from(pair) / 8.0)).collect(),
        scale: 1.0,
    };
    Arch {
        family: family.to_owned(),
        kind: Kind::Decoder,
        vocab: VOCAB,
        hidden: 64,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        ffn: 96,
        context: 512,
        activation: Activation::Silu,
        gated: true,
        norm: Norm::Rms,
        norm_eps: 1e-5,
        norms: Norms::Before,
        qk_norm: false,
        attention_scale: 0.25,
        embedding_scale: 1.0,
        attention_softcap: None,
        logit_softcap: None,
        tied: false,
        ropes: vec![rope(10_000.0), rope(500.0)],
        layers: vec![Layer { rope: Some(0), window: None }; 2],
        pooling: None,
        token_types: 0,
        positions: 0,
        first_position: 0,
    }
}

impl Case {
    pub(crate) fn read(name: &str) -> Case {
        let case =
            |arch, layouts: &[Layout]| Case { arch, layouts: layouts.to_vec(), seed: 1, biases: false };
        match name {
            "llama" => case(arch("llama"), &[Layout::F16]),
            "llama_q4" => case(arch("llama"), &[Layout::Q4m]),
            "llama_q5" => Case { seed: 2, ..case(arch("llama"), &[Layout::Q8m]) },
            "llama_bf16_bias" => Case { biases: true, ..case(arch("llama"), &[Layout::Bf16]) },
            // Layouts of codes and of floats beside each other in one model.
            "qwen3" => {
                let layouts = [Layout::Q8, Layout::F32Group, Layout::Q4m, Layout::Bf16];
                Case { biases: true, ..case(Arch { qk_norm: true, tied: true, ..arch("qwen3") }, &layouts) }
            }
            "gemma2" | "gemma3" => {
                let window = |layer: u32| (layer == 0).then_some(20);
                let layers = (0..2).map(|layer| Layer { rope: Some(1 - layer), window: window(layer) });
                let soft = name == "gemma2";
                let gemma = Arch {
                    activation: Activation::GeluTanh,
                    norms: Norms::Around,
                    qk_norm: !soft,
                    embedding_scale: 8.0,
                    attention_softcap: soft.then_some(50.0),
                    logit_softcap: soft.then_some(30.0),
                    tied: true,
                    layers: layers.collect(),
                    ..arch("gemma3_text")
                };
                case(gemma, &[Layout::Q8, Layout::Q4m])
            }
            "bert" => {
                let bert = Arch {
                    kind: Kind::Encoder,
                    activation: Activation::Gelu,
                    gated: false,
                    norm: Norm::Layer,
                    norms: Norms::Behind,
                    tied: true,
                    kv_heads: 4,
                    ropes: Vec::new(),
                    layers: vec![Layer { rope: None, window: None }; 2],
                    pooling: Some(Pooling { kind: PoolingKind::Mean, normalize: true }),
                    token_types: 2,
                    positions: 512,
                    ..arch("bert")
                };
                Case { biases: true, ..case(bert, &[Layout::F32Group]) }
            }
            other => panic!("no tiny model {other}"),
        }
    }

    /// Writes the bundle into a folder; a bundle is always one file.
    pub(crate) fn write(&self, folder: &Path, _files: usize) -> PathBuf {
        let path = folder.join("tiny.base");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut data = Data { seed: self.seed | 1 << 20, bytes: Vec::new(), tensors: Vec::new(), turn: 0 };
        let arch = &self.arch;
        let decoder = arch.kind == Kind::Decoder;
        data.matrix("embed", arch.vocab, arch.hidden, &self.layouts);
        if decoder {
            data.vector("final_norm", 1, arch.hidden);
            if !arch.tied {
                data.matrix("head", arch.vocab, arch.hidden, &self.layouts);
            }
        } else {
            data.vector("embed_norm", 1, arch.hidden);
            data.vector("embed_norm_bias", 1, arch.hidden);
            data.vector("positions", arch.positions, arch.hidden);
            data.vector("token_types", arch.token_types, arch.hidden);
        }
        for layer in 0..arch.layers.len() {
            self.layer(&mut data, layer);
        }
        data.finish(arch)
    }

    fn layer(&self, data: &mut Data, layer: usize) {
        let arch = &self.arch;
        let name = |part: &str| format!("layers.{layer}.{part}");
        let rows = (arch.heads + 2 * arch.kv_heads) * arch.head_dim;
        let mut linear = |part: &str, rows, cols| {
            data.matrix(&name(part), rows, cols, &self.layouts);
            if self.biases {
                data.vector(&name(&format!("{part}_bias")), 1, rows);
            }
        };
        linear("qkv", rows, arch.hidden);
        linear("o", arch.hidden, arch.heads * arch.head_dim);
        match arch.gated {
            true => linear("gate_up", 2 * arch.ffn, arch.hidden),
            false => linear("up", arch.ffn, arch.hidden),
        }
        linear("down", arch.hidden, arch.ffn);
        let mut norms = vec!["attn_norm", "ffn_norm"];
        if arch.norms == Norms::Around {
            norms.extend(["attn_post_norm", "ffn_post_norm"]);
        }
        for norm in norms {
            data.vector(&name(norm), 1, arch.hidden);
            if arch.norm == Norm::Layer {
                data.vector(&name(&format!("{norm}_bias")), 1, arch.hidden);
            }
        }
        if arch.qk_norm {
            data.vector(&name("q_norm"), 1, arch.head_dim);
            data.vector(&name("k_norm"), 1, arch.head_dim);
        }
    }
}

/// The data section in the making.
struct Data {
    seed: u64,
    bytes: Vec<u8>,
    tensors: Vec<Tensor>,
    turn: usize,
}

impl Data {
    fn next(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed >> 20
    }

    /// From -1 to 1.
    fn float(&mut self) -> f32 {
        (self.next() & 0xffff) as f32 / 32768.0 - 1.0
    }

    fn put(&mut self, name: &str, row: u32, (rows, cols): (u32, u32), layout: Layout, bytes: &[u8]) {
        self.bytes.resize(align(self.bytes.len() as u64, ITEM_ALIGN) as usize, 0);
        let mut sum = Sum::new();
        sum.add(bytes);
        let (offset, bytes_there) = (self.bytes.len() as u64, bytes.len() as u64);
        assert_eq!(layout.bytes(rows, cols), bytes_there);
        let checksum = sum.words();
        let name = name.to_owned();
        self.tensors.push(Tensor { name, row, rows, cols, layout, offset, bytes: bytes_there, checksum });
        self.bytes.extend_from_slice(bytes);
    }

    fn vector(&mut self, name: &str, rows: u32, cols: u32) {
        let around = if name.contains("norm") && !name.contains("bias") { 1.0 } else { 0.0 };
        let values: Vec<u8> =
            (0..rows * cols).flat_map(|_| (around + self.float() * 0.3).to_le_bytes()).collect();
        self.put(name, 0, (rows, cols), Layout::F32, &values);
    }

    /// A matrix in parts of up to 64 rows, each of the next layout. What belongs to one block of the next matrix stays in one
    /// part.
    fn matrix(&mut self, name: &str, rows: u32, cols: u32, layouts: &[Layout]) {
        for row in (0..rows).step_by(64) {
            let layout = layouts[self.turn % layouts.len()];
            self.turn += 1;
            let part = 64.min(rows - row);
            let mut bytes = Vec::new();
            for _ in 0..part.div_ceil(16) {
                if layout.is_coded() {
                    for _ in 0..cols.div_ceil(32) {
                        let codes =
                            core::array::from_fn(|_| core::array::from_fn(|_| self.next() as u8 >> 1));
                        let steps = if layout == Layout::Q4m { 15.0 } else { 127.0 };
                        let mut scales = [0; 16];
                        let mut minima = [0; 16];
                        for at in 0..16 {
                            let scale = 0.3 / steps * (1.5 + self.float());
                            scales[at] = to_f16(scale);
                            minima[at] = to_f16(-scale * steps / 2.0);
                        }
                        layout.pack_codes(&codes, &scales, &minima, &mut bytes);
                    }
                } else {
                    let values: Vec<f32> = (0..16 * cols).map(|_| self.float() * 0.2).collect();
                    layout.pack_floats(&values, cols as usize, &mut bytes);
                }
            }
            self.put(name, row, (part, cols), layout, &bytes);
        }
    }

    fn finish(mut self, arch: &Arch) -> Vec<u8> {
        self.tensors.iter_mut().for_each(|tensor| tensor.offset += DATA_ALIGN);
        let header = Header {
            architecture: arch.clone(),
            name: Some("tiny".to_owned()),
            profile: "keep".to_owned(),
            quantization: "tiny".to_owned(),
            source: Source { format: "none".to_owned(), quantization: "none".to_owned() },
            parameters: 12_345,
            slots: Vec::new(),
            tensors: self.tensors,
        };
        let header = canonical(&serde_json::to_value(&header).unwrap());
        let mut file = prologue(header.as_bytes(), DATA_ALIGN, DATA_ALIGN + self.bytes.len() as u64).to_vec();
        assert_eq!(file.len() as u64, PROLOGUE_BYTES);
        file.extend(header.as_bytes());
        file.resize(DATA_ALIGN as usize, 0);
        file.extend(self.bytes);
        file
    }
}
