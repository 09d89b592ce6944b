//! Where each message stands in a rendered chat, and how a rendered chat grows without being tokenized again.
//!
//! The border behind the first `k` messages is where their own rendering, without the generation prompt, ends, if that is how
//! the whole begins; a template that moves, merges or shortens messages has none there. In the tokens it is a border if the
//! parts on both sides, tokenized alone, are what the whole has there.
//!
//! The work is bounded, however long the chat: the renderings of beginnings, shortest first, may take [`FUEL`] instructions and
//! write [`BYTES`] together; the borders behind that are not known. Every byte is tokenized five times at most.

use std::ops::Range;

use sf_core::{Chat, Ending, Rendering, Span, Token};

use crate::codec::Codec;
use crate::error::CodecError;
use crate::given::{Given, Written};
use crate::guard::Prompt;

/// Instructions of all renderings of beginnings: twice what one rendering may take, enough for all beginnings of some hundred
/// messages.
const FUEL: u64 = 8_000_000;
/// Bytes of all renderings of beginnings.
const BYTES: usize = 64 << 20;

/// A rendered chat to which messages can be appended.
#[derive(Clone, Debug)]
pub struct Conversation {
    rendering: Rendering,
    prompt: Prompt,
    /// Behind each number of messages from 0 on.
    borders: Vec<Option<Border>>,
    /// Tokens in front of the text's own: a BOS that the template does not write.
    added: usize,
}

/// A [`Conversation`] after an append.
#[derive(Clone, Debug)]
pub struct Appended {
    /// The whole chat, text and tokens as [`Codec::conversation`] makes them; it may know where more of the messages stand.
    pub conversation: Conversation,
    /// How many of the earlier tokens stand unchanged in front; only those behind them were made. `None`: all were made anew,
    /// because the template writes the earlier messages otherwise now, or a token reaches over the border.
    pub kept: Option<usize>,
}

/// Between two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Border {
    /// Byte of the text.
    text: usize,
    /// Token, a missing BOS not counted.
    token: Option<usize>,
}

impl Conversation {
    /// Its text, tokens and spans.
    pub fn rendering(&self) -> &Rendering {
        &self.rendering
    }

    /// As [`Conversation::rendering`], to keep.
    pub fn into_rendering(self) -> Rendering {
        self.rendering
    }

    /// `tokens`: those of `prompt`. `borders`: behind each number of messages from 0 on; the last one may be the end.
    fn new(
        codec: &Codec,
        prompt: Prompt,
        mut tokens: Vec<Token>,
        borders: Vec<Option<Border>>,
    ) -> Conversation {
        let bos = codec.missing_bos(&tokens);
        let end = Border { text: prompt.text.len(), token: Some(tokens.len()) };
        tokens.splice(0..0, bos);
        let added = usize::from(bos.is_some());
        let span = |from: Option<Border>, until: Option<Border>| {
            let (from, until) =
                (from?, until.filter(|until| from.is_some_and(|from| from.text <= until.text))?);
            // A BOS belongs to the first message that says anything.
            let place = |border: Border| Some(if border.text == 0 { 0 } else { border.token? + added });
            let tokens = place(from).zip(place(until)).map(|(first, last)| first..last);
            Some(Span { text: from.text..until.text, tokens })
        };
        let messages = borders.windows(2).map(|pair| span(pair[0], pair[1])).collect();
        let last = borders.last().copied().flatten().filter(|last| last.text < end.text);
        let generation_prompt = last.and_then(|last| span(Some(last), Some(end)));
        let rendering = Rendering { text: prompt.text.clone(), tokens, messages, generation_prompt };
        Conversation { rendering, prompt, borders, added }
    }

    /// Tokens of the text itself.
    fn own_tokens(&self, range: Range<usize>) -> &[Token] {
        &self.rendering.tokens[self.added..][range]
    }
}

impl Codec {
    /// As [`Codec::render`], with the text and where each message stands in both.
    ///
    /// # Errors
    /// As [`Codec::render`].
    pub fn conversation(&self, chat: &Chat) -> Result<Conversation, CodecError> {
        let given = self.given(chat)?;
        let whole = given.whole()?;
        let ends = ends(&given, chat, &whole, 1);
        self.make_conversation(whole.prompt, &[vec![Some(0)], ends].concat())
    }

    /// Renders `chat`, which begins with the messages of `before`, and makes only the tokens of what is new, where the
    /// template and the tokenizer allow it. Either way text and tokens are those that [`Codec::conversation`] makes of `chat`.
    ///
    /// The text is rendered as a whole and compared, and the tokens at the border are made once with the message before it:
    /// nothing is believed.
    ///
    /// # Errors
    /// As [`Codec::render`].
    pub fn append(&self, before: &Conversation, chat: &Chat) -> Result<Appended, CodecError> {
        let given = self.given(chat)?;
        let whole = given.whole()?;
        let count = before.borders.len() - 1;
        let Some(Border { text, token: Some(token) }) = before.borders[count].filter(|border| {
            count <= chat.messages.len() && before.prompt.part(0..border.text).starts(&whole.prompt)
        }) else {
            let ends = ends(&given, chat, &whole, 1);
            let conversation = self.make_conversation(whole.prompt, &[vec![Some(0)], ends].concat())?;
            return Ok(Appended { conversation, kept: None });
        };
        let ends = ends(&given, chat, &whole, count + 1);
        let known = before.borders[..count].iter().rev().flatten();
        let from = known.copied().find(|border| border.token.is_some() && border.text < text);
        let from = from.unwrap_or(Border { text: 0, token: Some(0) });
        let end = whole.prompt.text.len();
        let around = self.encode_prompt(&whole.prompt.part(from.text..end))?;
        let new_ends: Vec<_> = ends.iter().map(|end| (*end)?.checked_sub(text)).collect();
        let (new, places) = self.split(&whole.prompt.part(text..end), &new_ends)?;
        let old = before.own_tokens(from.token.unwrap_or(0)..token);
        if around.strip_prefix(old) != Some(&new[..]) {
            let borders = before.borders.iter().map(|border| border.map(|border| border.text)).chain(ends);
            let conversation = self.make_conversation(whole.prompt, &borders.collect::<Vec<_>>())?;
            return Ok(Appended { conversation, kept: None });
        }
        let tokens = [before.own_tokens(0..token), &new].concat();
        let later = ends.into_iter().zip(places);
        let later = later
            .map(|(end, place)| end.map(|end| Border { text: end, token: place.map(|place| place + token) }));
        let borders = before.borders.iter().copied().chain(later).collect();
        let conversation = Conversation::new(self, whole.prompt, tokens, borders);
        Ok(Appended { conversation, kept: Some(token + before.added) })
    }

    fn make_conversation(
        &self,
        prompt: Prompt,
        borders: &[Option<usize>],
    ) -> Result<Conversation, CodecError> {
        let (tokens, places) = self.split(&prompt, borders)?;
        let border = |(text, token): (&Option<usize>, Option<usize>)| text.map(|text| Border { text, token });
        let borders = borders.iter().zip(places).map(border).collect();
        Ok(Conversation::new(self, prompt, tokens, borders))
    }

    /// Tokens of a prompt, and how many of them stand before each byte that is named, where that can be said.
    fn split(
        &self,
        prompt: &Prompt,
        borders: &[Option<usize>],
    ) -> Result<(Vec<Token>, Vec<Option<usize>>), CodecError> {
        let whole = self.encode_prompt(prompt)?;
        let end = prompt.text.len();
        let mut bytes: Vec<usize> = borders.iter().flatten().copied().chain([0, end]).collect();
        bytes.sort_unstable();
        bytes.dedup();
        let mut places = self.places(prompt, &bytes, &whole)?;
        if places.is_empty() {
            // Only borders at which the two parts beside them hold together.
            let mut whole_only = vec![0];
            for beside in bytes.windows(3) {
                let [from, at, until] = *beside else { unreachable!("windows of three") };
                let both = self.encode_prompt(&prompt.part(from..until))?;
                let left = self.encode_prompt(&prompt.part(from..at))?;
                let right = self.encode_prompt(&prompt.part(at..until))?;
                whole_only.extend((both == [left, right].concat()).then_some(at));
            }
            whole_only.push(end);
            bytes = whole_only;
            places = self.places(prompt, &bytes, &whole)?;
        }
        let place = |byte: usize| places.get(bytes.binary_search(&byte).ok()?).copied();
        let places = borders.iter().map(|border| match border {
            Some(0) => Some(0),
            Some(byte) if *byte == end => Some(whole.len()),
            border => border.and_then(place),
        });
        let places = places.collect();
        Ok((whole, places))
    }

    /// How many tokens stand before each byte, if the parts between them make up the whole; else nothing.
    fn places(&self, prompt: &Prompt, bytes: &[usize], whole: &[Token]) -> Result<Vec<usize>, CodecError> {
        let mut places = vec![0];
        let mut count = 0;
        for pair in bytes.windows(2) {
            let part = self.encode_prompt(&prompt.part(pair[0]..pair[1]))?;
            if !whole[count..].starts_with(&part) {
                return Ok(Vec::new());
            }
            count += part.len();
            places.push(count);
        }
        Ok(if count == whole.len() { places } else { Vec::new() })
    }
}

/// Where the rendering of the first messages ends, for each number of them from `from` on.
fn ends(given: &Given<'_>, chat: &Chat, whole: &Written, from: usize) -> Vec<Option<usize>> {
    let count = chat.messages.len();
    if from > count {
        return Vec::new();
    }
    let mut beginnings = Beginnings { given, whole, fuel: FUEL, bytes: BYTES };
    let last = match chat.ending {
        Ending::Prompt => beginnings.end(count),
        Ending::Closed | Ending::Continued => Some(whole.prompt.text.len()),
    };
    let mut ends: Vec<Option<usize>> = (from..count).map(|messages| beginnings.end(messages)).collect();
    ends.push(last);
    ends
}

/// Renders beginnings of a chat as long as that is affordable.
struct Beginnings<'a> {
    given: &'a Given<'a>,
    whole: &'a Written,
    /// What is left.
    fuel: u64,
    bytes: usize,
}

impl Beginnings<'_> {
    fn end(&mut self, messages: usize) -> Option<usize> {
        if self.fuel == 0 || self.bytes == 0 {
            return None;
        }
        let first = self.given.first(messages, false);
        // A refusal is over sooner than what is rendered; handing over a message costs as much as an instruction.
        // Any other failure may come at the end of what one rendering may take.
        let fuel = match &first {
            Ok(first) => first.fuel,
            Err(CodecError::Refused(_)) => self.whole.fuel,
            Err(_) => self.whole.fuel.max(FUEL / 8),
        };
        self.fuel = self.fuel.saturating_sub(fuel.max(messages as u64));
        let prompt = first.ok()?.prompt;
        self.bytes = self.bytes.saturating_sub(prompt.text.len());
        prompt.starts(&self.whole.prompt).then_some(prompt.text.len())
    }
}
