//! Vectors of texts: alone as in company, in order, by the model's own limits, and bad requests refused in words.

use sf_abi::descriptor::Capability;
use sf_abi::{
    SF_EMBED_1, SFR_E_ABI, SFR_E_ARG, SFR_E_UNSUPPORTED, SFR_NORMALIZE_NO, SFR_NORMALIZE_YES,
    SFR_POOLING_FIRST, SFR_POOLING_LAST, SFR_POOLING_MEAN, SfrEmbed,
};

use super::negotiation::started;
use super::open::small;
use crate::child::Subject;
use crate::compare::{Closeness, Dice};
use crate::journal::{Broken, Found, Journal, broken, ensure, not_here};
use crate::raw::refused;
use crate::session::Session;
use crate::vectors::{EmbedDraft, Vectors};

const SEED: u64 = 0xE4BED;
/// How far apart two vectors may be for a runtime that does not claim `determinism.batch_invariant`: one less their cosine.
const APART_MAX: f64 = 1e-3;

pub(super) fn run(subject: &Subject, journal: &mut Journal<'_>) {
    let Some((bound, descriptor)) = started(subject, journal) else { return };
    let Some(model) = &subject.model else { return };
    let mut texts = None;
    journal.check("offered", || {
        let session = Session::open(&bound, &small(subject, &descriptor, model)?)?;
        texts = Some(Texts::of(session)?);
        Ok("the model offers sf.embed/1 and says what its vectors are".to_owned())
    });
    let Some(mut texts) = texts else { return };
    let checks: [(&str, Check); 9] = [
        ("vectors", Texts::vectors),
        ("tokens-matter", Texts::tokens_matter),
        ("repeatable", Texts::repeatable),
        ("company-is-alone", Texts::company_is_alone),
        ("longest", Texts::longest),
        ("pooling", Texts::pooling),
        ("normalize", Texts::normalize),
        ("texts-refused", Texts::texts_refused),
        ("layout-refused", Texts::layout_refused),
    ];
    for (name, check) in checks {
        journal.check(name, || check(&mut texts));
    }
    let Texts { session, .. } = texts;
    session.close();
    bound.shutdown();
}

type Check = fn(&mut Texts) -> Found;

/// A model that makes vectors, and texts for it.
struct Texts {
    session: Session,
    vectors: Vectors,
    longest: u32,
    texts: Vec<Vec<u32>>,
}

impl Texts {
    fn of(session: Session) -> Result<Texts, Broken> {
        let capability = session.capability("workload", "embedding").cloned();
        let facts = session.description.embedding.clone();
        let offered = !session.interface(SF_EMBED_1).is_null();
        match (offered, facts.is_some()) {
            (false, false) => match capability {
                Some(Capability::Yes(_)) => {
                    return Err(broken!("workload.embedding is claimed, but the model offers no sf.embed/1"));
                }
                Some(Capability::No(reason)) => not_here!("cannot: {reason}"),
                _ => not_here!("the model offers no sf.embed/1"),
            },
            (true, false) => {
                return Err(broken!("sf.embed/1 is offered, and describe() has no \"embedding\""));
            }
            (false, true) => {
                return Err(broken!("describe() has an \"embedding\", but there is no sf.embed/1"));
            }
            (true, true) => {}
        }
        if let Some(Capability::No(reason)) = capability {
            return Err(broken!("sf.embed/1 is offered, and workload.embedding says: {reason}"));
        }
        let facts = facts.ok_or_else(|| broken!("no \"embedding\""))?;
        ensure!(facts.dims > 0 && facts.tokens_max > 0, "dims or tokens_max is 0: {facts:?}");
        let known = ["mean", "first", "last"].contains(&facts.pooling.as_str());
        ensure!(known, "pooling is {:?}, it can be mean, first or last", facts.pooling);
        let vectors = session.vectors(facts.dims as usize)?;
        ensure!(vectors.is_complete(), "embed is NULL in its table");
        let (mut dice, vocab, longest) = (Dice::new(SEED), session.vocab(), facts.tokens_max);
        let texts = [7, 1, 3, 19, 2].map(|length: u32| dice.tokens(vocab, length.min(longest))).to_vec();
        Ok(Texts { session, vectors, longest, texts })
    }

    fn all(&self) -> Vec<&[u32]> {
        self.texts.iter().map(Vec::as_slice).collect()
    }

    /// As near as the runtime claims.
    fn judge(&self, want: &[f32], got: &[f32], what: &str) -> Result<(), Broken> {
        match self.session.closeness {
            Closeness::Exact => {
                ensure!(want == got, "{what}: another vector, though determinism.batch_invariant is claimed");
            }
            Closeness::Near => {
                let apart = 1.0 - cosine(want, got);
                ensure!(apart <= APART_MAX, "{what}: the cosine is {apart:.1e} below one");
            }
        }
        Ok(())
    }

    fn vectors(&mut self) -> Found {
        let vectors = self.vectors.of(&self.all())?;
        Ok(format!("{} of {} elements", vectors.len(), self.vectors.dims))
    }

    fn tokens_matter(&mut self) -> Found {
        let vocab = self.session.vocab();
        let mut other = self.texts[0].clone();
        other[0] = (other[0] + 1) % vocab;
        let vectors = self.vectors.of(&[&self.texts[0], &other])?;
        ensure!(vectors[0] != vectors[1], "another first token gives the same vector");
        Ok(format!("another token: a cosine of {:.3}", cosine(&vectors[0], &vectors[1])))
    }

    fn repeatable(&mut self) -> Found {
        let (first, again) = (self.vectors.of(&self.all())?, self.vectors.of(&self.all())?);
        ensure!(first == again, "the same request gives other vectors");
        Ok("the same bits twice".to_owned())
    }

    fn company_is_alone(&mut self) -> Found {
        let together = self.vectors.of(&self.all())?;
        let backwards: Vec<&[u32]> = self.all().into_iter().rev().collect();
        let turned = self.vectors.of(&backwards)?;
        for (at, text) in self.all().into_iter().enumerate() {
            let alone = self.vectors.of(&[text])?.remove(0);
            self.judge(&alone, &together[at], &format!("text {at} among others"))?;
            self.judge(&alone, &turned[self.texts.len() - 1 - at], &format!("text {at} in another order"))?;
        }
        Ok(format!("{} texts", self.texts.len()))
    }

    fn longest(&mut self) -> Found {
        // A model may take very long texts; what it refuses is worth knowing in any case.
        let long = vec![0; self.longest as usize + 1];
        refused(
            self.vectors.attempt(&EmbedDraft::of(&[&self.texts[0], &long])),
            &[SFR_E_ARG],
            "a text of more than tokens_max tokens",
        )?;
        let limit = self.longest.min(512) as usize;
        self.vectors.of(&[&long[..limit]])?;
        Ok(format!("{limit} tokens taken, {} refused", long.len()))
    }

    fn pooling(&mut self) -> Found {
        let text = &self.texts[3];
        let edits: [fn(&mut SfrEmbed); 3] = [
            |request| request.pooling = SFR_POOLING_MEAN,
            |request| request.pooling = SFR_POOLING_FIRST,
            |request| request.pooling = SFR_POOLING_LAST,
        ];
        let mut found = Vec::new();
        for edit in edits {
            found.push(self.vectors.draft(&EmbedDraft::of(&[text]).with(edit), 1)?.remove(0));
        }
        ensure!(found[1] != found[2], "first and last token give the same vector");
        ensure!(found[0] != found[1], "the mean is the first token's vector");
        let one = self.vectors.draft(&EmbedDraft::of(&[&text[..1]]).with(edits[0]), 1)?.remove(0);
        let own = self.vectors.draft(&EmbedDraft::of(&[&text[..1]]).with(edits[2]), 1)?.remove(0);
        self.judge(&one, &own, "mean and last of one token")?;
        Ok("mean, first and last differ, and agree on one token".to_owned())
    }

    fn normalize(&mut self) -> Found {
        let texts = self.all();
        let of =
            |edit: fn(&mut SfrEmbed)| self.vectors.draft(&EmbedDraft::of(&texts).with(edit), texts.len());
        let ones = of(|request| request.normalize = SFR_NORMALIZE_YES)?;
        let plain = of(|request| request.normalize = SFR_NORMALIZE_NO)?;
        for (at, (one, plain)) in ones.iter().zip(&plain).enumerate() {
            let length = dot(one, one).sqrt();
            ensure!((length - 1.0).abs() < 1e-3, "normalized, text {at} has a vector of length {length}");
            let cosine = cosine(one, plain);
            ensure!(cosine > 0.9999, "normalized, text {at} points elsewhere: a cosine of {cosine}");
        }
        Ok("lengths of one, in the same direction".to_owned())
    }

    fn texts_refused(&mut self) -> Found {
        let vocab = self.session.vocab();
        let good = &self.texts[0];
        let attempts: [(&str, EmbedDraft); 4] = [
            ("no texts", EmbedDraft::of(&[])),
            ("an empty text", EmbedDraft::of(&[good, &[]])),
            ("a token past the vocabulary", EmbedDraft::of(&[good, &[vocab]])),
            ("the last token there could be", EmbedDraft::of(&[&[u32::MAX]])),
        ];
        for (what, draft) in &attempts {
            refused(self.vectors.attempt(draft), &[SFR_E_ARG], what)?;
        }
        self.vectors.of(&[good])?;
        Ok("refused, and the model goes on".to_owned())
    }

    fn layout_refused(&mut self) -> Found {
        let good = || EmbedDraft::of(&[&self.texts[0], &self.texts[2]]);
        let layout = [SFR_E_ABI, SFR_E_ARG];
        let newer = [SFR_E_UNSUPPORTED];
        let attempts: [(&str, EmbedDraft, &[i32]); 10] = [
            ("a short request", good().with(|request| request.struct_size -= 8), &[SFR_E_ABI]),
            ("a set tail", EmbedDraft { tail: vec![0, 0, 0, 0, 0, 0, 0, 1], ..good() }, &newer),
            ("a flag", good().with(|request| request.flags = 1 << 31), &newer),
            ("an unknown pooling", good().with(|request| request.pooling = 99), &newer),
            ("an unknown normalize", good().with(|request| request.normalize = 99), &newer),
            ("fewer tokens than lengths", good().with(|request| request.tokens.count -= 1), &layout),
            ("fewer lengths than tokens", good().with(|request| request.lengths.count -= 1), &layout),
            ("a stride of 8", good().with(|request| request.tokens.stride = 8), &[SFR_E_ABI]),
            ("a crooked address", good().with(|request| request.lengths.at += 4), &[SFR_E_ABI]),
            ("no address", good().with(|request| request.tokens.at = 0), &layout),
        ];
        for (what, draft, codes) in &attempts {
            refused(self.vectors.attempt(draft), codes, what)?;
        }
        let long = EmbedDraft { tail: vec![0; 24], ..good() };
        self.vectors.draft(&long, 2)?;
        Ok("refused; a longer request with a zero tail is taken".to_owned())
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE)
}
