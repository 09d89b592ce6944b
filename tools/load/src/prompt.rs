//! Prompts: plain English of about so many tokens, different for each seed and number, the same on every machine.

use crate::rng::Rng;

/// Tokens per word of this text, until a server says better. Byte-pair vocabularies of today's models have most of
/// these words as one token; full stops, commas and capitals add a few.
const TOKENS_PER_WORD: f64 = 1.15;
/// Fewest and most words of a sentence.
const SENTENCE: (u64, u64) = (6, 15);

/// Common words, so that vocabularies agree on them.
const WORDS: &str = "the of and to in that was for with his they at be this from have or by one had not but what all \
    were when we there can an your which their said if do will each about how up out them then she many some so these \
    would other into has more her two like him see time could no make than first been its who now people my made over \
    did down only way find use may water long little very after words called just where most know get through back \
    much before go good new write our used me man too any day same right look think also around another came come \
    work three word must because does part even place well such here take why things help put years different away \
    again off went old number great tell men say small every found still between name should home big give air line \
    set own under read last never us left end along while might next sound below saw something thought both few those \
    always looked show large often together asked house world going want school important until form food keep \
    children feet land side without boy once animals life enough took sometimes four head above kind began almost \
    live page got earth need far hand high year mother light parts country father let night following picture being \
    study second eyes soon times story boys since white days ever paper hard near sentence better best across during \
    today others however sure means knew try told young miles sun ways thing whole hear example heard several change \
    answer room sea against top turned learn point city play toward five using himself usually money seen car morning \
    given trees river mountain window garden market village letter winter summer bridge stone music doctor teacher \
    farmer sailor captain engine station harbour island forest valley castle corner kitchen table basket candle mirror";

/// Writes prompts of one seed.
#[derive(Clone, Debug)]
pub struct Writer {
    seed: u64,
    words: Vec<&'static str>,
    tokens_per_word: f64,
}

impl Writer {
    /// With the usual tokens per word.
    pub fn new(seed: u64) -> Self {
        Writer { seed, words: WORDS.split_whitespace().collect(), tokens_per_word: TOKENS_PER_WORD }
    }

    /// With the tokens per word that a server counted; nonsense is not believed.
    #[must_use]
    pub fn calibrated(mut self, tokens_per_word: f64) -> Self {
        if (0.2..20.0).contains(&tokens_per_word) {
            self.tokens_per_word = tokens_per_word;
        }
        self
    }

    /// Tokens that one word makes on average.
    pub fn tokens_per_word(&self) -> f64 {
        self.tokens_per_word
    }

    /// About `tokens` tokens of text. Each `number` has its own text, different from the first words on.
    pub fn text(&self, number: u64, tokens: u32) -> String {
        let words = (f64::from(tokens) / self.tokens_per_word).round().max(1.0) as usize;
        self.words(number, words)
    }

    /// Exactly `count` words of text.
    pub fn words(&self, number: u64, count: usize) -> String {
        let mut rng = Rng::new(self.seed, number);
        let mut text = String::with_capacity(count * 6);
        let mut left_in_sentence = 0;
        for index in 0..count {
            let word = self.words[rng.below(self.words.len() as u64) as usize];
            if left_in_sentence == 0 {
                left_in_sentence = SENTENCE.0 + rng.below(SENTENCE.1 - SENTENCE.0);
                text.push_str(if index > 0 { " " } else { "" });
                text.push(word.as_bytes()[0].to_ascii_uppercase() as char);
                text.push_str(&word[1..]);
            } else {
                text.push(' ');
                text.push_str(word);
            }
            left_in_sentence -= 1;
            if left_in_sentence == 0 || index + 1 == count {
                text.push('.');
            } else if rng.below(12) == 0 {
                text.push(',');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_english_sentences_of_the_asked_length() {
        let writer = Writer::new(7);
        for count in [1, 2, 17, 400] {
            let text = writer.words(3, count);
            assert_eq!(text.split_whitespace().count(), count, "{text}");
            assert!(
                text.starts_with(|first: char| first.is_ascii_uppercase()) && text.ends_with('.'),
                "{text}"
            );
        }
        assert_eq!(writer.text(0, 115).split_whitespace().count(), 100);
        assert_eq!(writer.calibrated(2.0).text(0, 100).split_whitespace().count(), 50);
        assert!((Writer::new(7).calibrated(f64::NAN).tokens_per_word() - TOKENS_PER_WORD).abs() < 1e-9);
    }

    #[test]
    fn texts_differ_by_seed_and_number_and_are_the_same_again() {
        let begin = |seed: u64, number: u64| Writer::new(seed).words(number, 8);
        let texts: Vec<String> =
            (0..100).map(|number| begin(1, number)).chain((2..100).map(|seed| begin(seed, 0))).collect();
        for (index, text) in texts.iter().enumerate() {
            assert!(!texts[..index].contains(text), "{text} twice");
        }
        assert_eq!(begin(5, 6), begin(5, 6));
    }
}
