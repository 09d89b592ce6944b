//! The tensors of a bundle, and which tensors of the source each is made of, by the names of a model directory.

use sf_base::{Arch, Kind, Norms};

/// How a tensor is used, which decides how it may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is multiplied with.
    Matrix,
    /// It is looked up, and multiplied with at the end.
    Table,
    /// Its elements are taken as they are, row by row.
    Rows,
    /// The same of a single row.
    Vector,
}

/// A tensor of a bundle.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) cols: u32,
    pub(super) purpose: Use,
    /// The source's, in the order of rows, or of elements of a vector, with the rows of each.
    pub(super) from: Vec<(String, u32)>,
    /// Sixteen rows of the first and sixteen of the second by turns.
    pub(super) alternating: bool,
    /// It may be missing, as a whole.
    pub(super) optional: bool,
}

/// A list in the making.
struct List<'a> {
    arch: &'a Arch,
    all: Vec<Wanted>,
}

impl List<'_> {
    fn matrix(&mut self, name: String, cols: u32, from: Vec<(String, u32)>) -> &mut Wanted {
        self.push(Wanted { cols, purpose: Use::Matrix, ..Wanted::plain(name, from) })
    }

    fn vector(&mut self, name: String, from: Vec<(String, u32)>) -> &mut Wanted {
        let cols = from.iter().map(|(_, size)| size).sum();
        self.push(Wanted { cols, purpose: Use::Vector, ..Wanted::plain(name, from) })
    }

    fn push(&mut self, wanted: Wanted) -> &mut Wanted {
        self.all.push(wanted);
        self.all.last_mut().expect("it was just pushed")
    }

    /// A matrix and its bias, if it has one.
    fn linear(&mut self, name: &str, cols: u32, stems: &[(String, u32)]) -> &mut Wanted {
        let of = |what: &str| stems.iter().map(|(stem, rows)| (format!("{stem}.{what}"), *rows)).collect();
        self.vector(format!("{name}_bias"), of("bias")).optional = true;
        self.matrix(name.to_owned(), cols, of("weight"))
    }

    fn norm(&mut self, name: &str, size: u32, stem: &str) {
        self.vector(name.to_owned(), vec![(format!("{stem}.weight"), size)]);
    }

    fn norm_with_bias(&mut self, name: &str, stem: &str) {
        self.norm(name, self.arch.hidden, stem);
        self.vector(format!("{name}_bias"), vec![(format!("{stem}.bias"), self.arch.hidden)]);
    }

    fn rows(&mut self, name: &str, rows: u32, from: String) -> &mut Wanted {
        let cols = self.arch.hidden;
        self.push(Wanted { cols, ..Wanted::plain(name.to_owned(), vec![(from, rows)]) })
    }
}

impl Wanted {
    /// Rows and columns that tensor `number` of the source has.
    pub(super) fn shape(&self, number: usize) -> (u64, u64) {
        let size = u64::from(self.from[number].1);
        if self.purpose == Use::Vector { (1, size) } else { (size, self.cols.into()) }
    }

    fn plain(name: String, from: Vec<(String, u32)>) -> Wanted {
        Wanted { name, cols: 0, purpose: Use::Rows, from, alternating: false, optional: false }
    }
}

/// What a model of this architecture is made of; `prefix`: what an encoder's names begin with.
pub(super) fn wanted(arch: &Arch, prefix: &str) -> Vec<Wanted> {
    let mut list = List { arch, all: Vec::new() };
    match arch.kind {
        Kind::Decoder => decoder(&mut list),
        Kind::Encoder => encoder(&mut list, prefix),
    }
    list.all
}

fn decoder(list: &mut List<'_>) {
    let Arch { hidden, vocab, ffn, head_dim, .. } = *list.arch;
    list.rows("embed", vocab, "model.embed_tokens.weight".to_owned()).purpose = Use::Table;
    list.norm("final_norm", hidden, "model.norm");
    if !list.arch.tied {
        list.rows("head", vocab, "lm_head.weight".to_owned()).purpose = Use::Table;
    }
    let (queries, keys) = (list.arch.heads * head_dim, list.arch.kv_heads * head_dim);
    let around = list.arch.norms == Norms::Around;
    for layer in 0..list.arch.layers.len() {
        let (to, at) = (format!("layers.{layer}"), format!("model.layers.{layer}"));
        list.norm(&format!("{to}.attn_norm"), hidden, &format!("{at}.input_layernorm"));
        let projections = [("q", queries), ("k", keys), ("v", keys)];
        let qkv = projections.map(|(part, rows)| (format!("{at}.self_attn.{part}_proj"), rows));
        list.linear(&format!("{to}.qkv"), hidden, &qkv);
        if list.arch.qk_norm {
            for part in ["q_norm", "k_norm"] {
                list.norm(&format!("{to}.{part}"), head_dim, &format!("{at}.self_attn.{part}"));
            }
        }
        list.linear(&format!("{to}.o"), queries, &[(format!("{at}.self_attn.o_proj"), hidden)]);
        if around {
            list.norm(&format!("{to}.attn_post_norm"), hidden, &format!("{at}.post_attention_layernorm"));
            list.norm(&format!("{to}.ffn_post_norm"), hidden, &format!("{at}.post_feedforward_layernorm"));
        }
        let before = if around { "pre_feedforward_layernorm" } else { "post_attention_layernorm" };
        list.norm(&format!("{to}.ffn_norm"), hidden, &format!("{at}.{before}"));
        let gate_up = ["gate", "up"].map(|part| (format!("{at}.mlp.{part}_proj.weight"), ffn));
        list.matrix(format!("{to}.gate_up"), hidden, gate_up.to_vec()).alternating = true;
        list.linear(&format!("{to}.down"), ffn, &[(format!("{at}.mlp.down_proj"), hidden)]);
    }
}

fn encoder(list: &mut List<'_>, prefix: &str) {
    let Arch { hidden, vocab, ffn, positions, token_types, .. } = *list.arch;
    let table = |what: &str| format!("{prefix}embeddings.{what}_embeddings.weight");
    list.rows("embed", vocab, table("word")).purpose = Use::Table;
    list.rows("positions", positions, table("position"));
    list.rows("token_types", token_types, table("token_type"));
    list.norm_with_bias("embed_norm", &format!("{prefix}embeddings.LayerNorm"));
    for layer in 0..list.arch.layers.len() {
        let (to, at) = (format!("layers.{layer}"), format!("{prefix}encoder.layer.{layer}"));
        let qkv = ["query", "key", "value"].map(|part| (format!("{at}.attention.self.{part}"), hidden));
        list.linear(&format!("{to}.qkv"), hidden, &qkv);
        list.linear(&format!("{to}.o"), hidden, &[(format!("{at}.attention.output.dense"), hidden)]);
        list.norm_with_bias(&format!("{to}.attn_norm"), &format!("{at}.attention.output.LayerNorm"));
        list.linear(&format!("{to}.up"), hidden, &[(format!("{at}.intermediate.dense"), ffn)]);
        list.linear(&format!("{to}.down"), ffn, &[(format!("{at}.output.dense"), hidden)]);
        list.norm_with_bias(&format!("{to}.ffn_norm"), &format!("{at}.output.LayerNorm"));
    }
}
