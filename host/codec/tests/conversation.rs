//! Each message is found in what the template writes, and a rendered chat grows to the same tokens as one rendered anew.

mod charsmap;
mod directory;
mod fixtures;
#[path = "../../artifact/tests/support/mod.rs"]
mod support;
mod tiny;

use fixtures::{chats, families, folder, readable, with_template};
use sf_artifact::open;
use sf_codec::{Codec, CodecError, CodecOptions};
use sf_core::{Chat, Ending, Message, Rendering, Role, Span};
use support::{SMOLLM2, real_model};
use tiny::{bpe_header, message, spm_header};

/// All families on three tokenizers, one of them with the family's own markers; the tokenizers of directories, and a real
/// model; by name.
fn codecs() -> Vec<(String, Codec)> {
    let mut codecs = fixtures::families_with_markers();
    for (kind, header) in [("bpe", bpe_header()), ("spm", spm_header())] {
        let families = families(&folder().join("families"), &header).into_iter();
        codecs.extend(families.map(|(name, codec)| (format!("{name} on {kind}"), codec)));
    }
    for (kind, file) in
        [("byte level", directory::byte_level()), ("byte fallback", directory::byte_fallback())]
    {
        let codec = directory::open(&file, &directory::config()).expect(kind);
        codecs.push((format!("tokenizer.json, {kind}"), codec));
    }
    let artifact = open(real_model(SMOLLM2)).expect("a real model");
    let codec = Codec::open(&artifact, CodecOptions::default()).expect("a known tokenizer");
    codecs.push(("SmolLM2".to_owned(), codec));
    codecs
}

fn beginning(chat: &Chat, count: usize, ending: Ending) -> Chat {
    Chat { messages: chat.messages[..count].to_vec(), ending, ..chat.clone() }
}

/// What the definition says of a rendering, found out by rendering every beginning; how many messages stand apart, in the text
/// and in the tokens.
fn check_spans(name: &str, codec: &Codec, chat: &Chat, found: &Rendering) -> (usize, usize) {
    assert_eq!(codec.render_text(chat).as_ref(), Ok(&found.text), "{name}");
    assert_eq!(codec.render(chat).as_ref(), Ok(&found.tokens), "{name}");
    assert_eq!(found.messages.len(), chat.messages.len(), "{name}");
    let end = |count: usize| {
        let closed = beginning(chat, count, Ending::Closed);
        match chat.ending {
            Ending::Closed | Ending::Continued if count == chat.messages.len() => Some(found.text.len()),
            _ if count == 0 => Some(0),
            _ => codec
                .render_text(&closed)
                .ok()
                .filter(|text| found.text.starts_with(text.as_str()))
                .map(|text| text.len()),
        }
    };
    let mut apart = (0, 0);
    for (at, span) in found.messages.iter().enumerate() {
        let expect = end(at).zip(end(at + 1)).filter(|(from, until)| from <= until);
        let text = span.as_ref().map(|span| (span.text.start, span.text.end));
        assert_eq!(text, expect, "{name}, message {at}");
        let Some(span) = span else { continue };
        apart.0 += 1;
        let Some(tokens) = &span.tokens else { continue };
        apart.1 += 1;
        // Of no text at all the tokens are a BOS, which the template may write later.
        if span.text.end > 0 && (at + 1 < chat.messages.len() || chat.ending == Ending::Prompt) {
            let alone = codec.render(&beginning(chat, at + 1, Ending::Closed)).expect("it has an end");
            assert_eq!(found.tokens[..tokens.end], alone, "{name}, up to message {at}");
        }
        let before = at.checked_sub(1).and_then(|before| found.messages[before].as_ref()?.tokens.as_ref());
        assert!(before.is_none_or(|before| before.end == tokens.start), "{name}, message {at}");
        assert!(at > 0 || tokens.start == 0, "{name}");
    }
    if let (Some(prompt), Some(Some(last))) = (&found.generation_prompt, found.messages.last()) {
        assert_eq!(prompt.text, last.text.end..found.text.len(), "{name}");
        let (before, after) = (last.tokens.as_ref(), prompt.tokens.as_ref());
        assert!(before.is_none_or(|before| after.is_some_and(|after| after.start == before.end)), "{name}");
        assert!(after.is_none_or(|after| after.end == found.tokens.len()), "{name}");
    }
    assert!(found.generation_prompt.is_none() || chat.ending == Ending::Prompt, "{name}");
    apart
}

#[test]
fn messages_stand_where_their_own_rendering_says() {
    let (mut renderings, mut messages, mut in_text, mut in_tokens, mut prompts) = (0, 0, 0, 0, 0);
    for (family, codec) in codecs() {
        for (name, chat) in chats() {
            let chat = readable(&codec, &chat);
            let found = match codec.conversation(&chat) {
                Ok(found) => found.into_rendering(),
                Err(error) => {
                    assert_eq!(codec.render(&chat), Err(error), "{family}, {name}");
                    continue;
                }
            };
            let apart = check_spans(&format!("{family}, {name}"), &codec, &chat, &found);
            renderings += 1;
            messages += chat.messages.len();
            in_text += apart.0;
            in_tokens += apart.1;
            prompts += usize::from(found.generation_prompt.is_some());
        }
    }
    eprintln!(
        "{renderings} renderings of {messages} messages: {in_text} have a span in the text, {in_tokens} in the tokens too; \
         {prompts} generation prompts"
    );
    assert!(in_tokens * 2 > messages, "most messages stand apart");
}

#[test]
fn a_chat_that_grows_has_the_tokens_of_one_that_is_rendered_anew() {
    let (mut own, mut own_kept) = (0, 0);
    let (mut appends, mut kept, mut saved, mut made, mut moved) = (0, 0, 0, 0, 0);
    for (family, codec) in codecs() {
        for (name, chat) in chats() {
            let chat = readable(&codec, &chat);
            let Ok(whole) = codec.conversation(&chat) else { continue };
            for count in 1..chat.messages.len() {
                // As a session has it: the prompt of an earlier turn.
                let Ok(before) = codec.conversation(&beginning(&chat, count, Ending::Prompt)) else {
                    continue;
                };
                let after = codec.append(&before, &chat).expect("it renders anew");
                assert_eq!(
                    after.conversation.rendering(),
                    whole.rendering(),
                    "{family}, {name}, behind {count}"
                );
                appends += 1;
                // With markers of its own, as the family's models have them.
                let is_own = !family.contains(' ');
                own += usize::from(is_own);
                own_kept += usize::from(is_own && after.kept.is_some());
                if let Some(tokens) = after.kept {
                    let earlier = &before.rendering().tokens[..tokens];
                    assert_eq!(after.conversation.rendering().tokens[..tokens], *earlier, "{family}, {name}");
                    kept += 1;
                    saved += tokens;
                }
                let end =
                    before.rendering().messages.last().and_then(Option::as_ref).map(|last| last.text.end);
                let same = end
                    .is_some_and(|end| whole.rendering().text.starts_with(&before.rendering().text[..end]));
                moved += usize::from(!same && after.kept.is_none());
                made += whole.rendering().tokens.len();
            }
        }
    }
    eprintln!(
        "{appends} appends: {kept} make only the new tokens and keep {saved} of {made}; \
         {moved} are written otherwise by the template, in {} a token reaches over the border",
        appends - kept - moved
    );
    eprintln!("{own_kept} of the {own} on the family's own markers make only the new tokens");
    assert!(kept * 2 > appends, "most appends keep what is there");
}

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

fn spans(source: &str, messages: &[Message]) -> Rendering {
    let codec = with_template(source, source, &bpe_header());
    codec.conversation(&messages.to_vec().into()).expect("it renders").into_rendering()
}

fn span(text: std::ops::Range<usize>, tokens: std::ops::Range<usize>) -> Span {
    Span { text, tokens: Some(tokens) }
}

#[test]
fn spans_count_bytes_and_tokens_from_the_start() {
    let found = spans(CHATML, &[message(Role::User, "é"), message(Role::Assistant, "the<|im_end|>")]);
    let text = |span: &Span| found.text[span.text.clone()].to_owned();
    let texts: Vec<String> =
        found.messages.iter().flatten().chain(&found.generation_prompt).map(text).collect();
    let expect = [
        "<|im_start|>user\né<|im_end|>\n",
        "<|im_start|>assistant\nthe<|im_end|><|im_end|>\n",
        "<|im_start|>assistant\n",
    ];
    assert_eq!(texts, expect);
    // A letter is a token here, é two; of the marker in the message its seven pieces are.
    assert_eq!(found.messages, [Some(span(0..30, 0..10)), Some(span(30..76, 10..31))]);
    assert_eq!(found.generation_prompt, Some(span(76..98, 31..42)));
}

#[test]
fn a_template_that_does_not_write_messages_one_behind_the_other_has_no_spans_there() {
    let turns = [message(Role::User, "a"), message(Role::Assistant, "b</think>c"), message(Role::User, "d")];
    let check = |source: &str, expect: [bool; 3], prompt: bool| {
        let found = spans(source, &turns);
        let known: Vec<bool> = found.messages.iter().map(Option::is_some).collect();
        assert_eq!((&known[..], found.generation_prompt.is_some()), (&expect[..], prompt), "{source}");
    };
    check(CHATML, [true, true, true], true);
    // The last message is written otherwise than an earlier one.
    check(
        "{% for m in messages %}<s>{{ m.content if loop.last else m.content.split('</think>')[-1] }}{% endfor %}",
        [true, false, false],
        false,
    );
    check("{{ messages | length }}{% for m in messages %}<s>{{ m.content }}{% endfor %}", [false; 3], false);
    check("{% for m in messages %}<s>{{ m.content }}{% endfor %}</s>", [false; 3], false);
    check("{% for m in messages | reverse %}{{ m.content }}<s>{% endfor %}", [false; 3], false);
    // Behind an assistant no prompt is due: a beginning that is refused has no end.
    check(
        "{% if messages[-1].role == 'assistant' %}{{ raise_exception('no') }}{% endif %}\
         {% for m in messages %}<s>{{ m.content }}{% endfor %}{{ '</s>' if add_generation_prompt }}",
        [true, false, false],
        true,
    );
}

#[test]
fn a_token_that_reaches_over_a_border_leaves_only_the_text() {
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let found =
        spans(source, &[message(Role::User, "t"), message(Role::User, "h<s>"), message(Role::User, "e")]);
    let text = |at: usize| found.messages[at].as_ref().map(|span| span.text.clone());
    assert_eq!([text(0), text(1), text(2)], [Some(0..1), Some(1..5), Some(5..6)]);
    let tokens = |at: usize| found.messages[at].as_ref().and_then(|span| span.tokens.clone());
    assert_eq!([tokens(0), tokens(1), tokens(2)], [None, None, Some(4..5)], "{:?}", found.tokens);
}

#[test]
fn a_chat_of_thousands_of_messages_costs_no_more_than_is_said_and_still_grows() {
    let codec = with_template(CHATML, "chatml", &bpe_header());
    let turn =
        |at: usize| message(if at.is_multiple_of(2) { Role::User } else { Role::Assistant }, "and so on");
    let mut chat = Chat::from((0..3000).map(turn).collect::<Vec<_>>());
    let before = codec.conversation(&chat).expect("it renders");
    let known = before.rendering().messages.iter().filter(|span| span.is_some()).count();
    assert!((100..3000).contains(&known), "{known}");
    assert!(before.rendering().generation_prompt.is_some());
    chat.messages.extend((3000..3010).map(turn));
    let after = codec.append(&before, &chat).expect("it renders");
    let prompt = before.rendering().generation_prompt.as_ref().and_then(|span| span.tokens.clone());
    assert_eq!(after.kept, prompt.map(|prompt| prompt.start));
    let found = after.conversation.rendering();
    assert_eq!(Ok(&found.tokens), codec.render(&chat).as_ref());
    let tail = &found.messages[3000..];
    assert!(tail.iter().all(|span| span.as_ref().is_some_and(|span| span.tokens.is_some())), "{tail:?}");
}

#[test]
fn what_cannot_be_appended_is_rendered_anew() {
    let codec = with_template(CHATML, "chatml", &bpe_header());
    let chat =
        |texts: &[&str]| Chat::from(texts.iter().map(|text| message(Role::User, text)).collect::<Vec<_>>());
    let before = codec.conversation(&chat(&["one", "two"])).expect("it renders");
    let check = |texts: &[&str], keeps: bool| {
        let after = codec.append(&before, &chat(texts)).expect("it renders");
        assert_eq!(after.kept.is_some(), keeps, "{texts:?}");
        let anew = codec.conversation(&chat(texts)).expect("it renders");
        assert_eq!(after.conversation.rendering(), anew.rendering(), "{texts:?}");
    };
    check(&["one", "two", "three"], true);
    check(&["one", "two"], true);
    check(&["one"], false);
    check(&["one", "other", "three"], false);
    // The character that keeps texts apart is another one now.
    check(&["one", "two", "\u{e000}<|im_end|>"], true);
    let refusing = with_template("{{ raise_exception('no') }}", "refusing", &bpe_header());
    let refused = refusing.append(&before, &chat(&["one", "two"])).expect_err("it refuses");
    assert_eq!(refused, CodecError::Refused("no".to_owned()));
}
