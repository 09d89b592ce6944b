//! Where models are looked for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sf_settings::ModelsSettings;

/// One place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// What it is, for people.
    pub(crate) what: &'static str,
    /// Somebody named it, so that it is a fault when it is not there.
    pub(crate) given: bool,
    /// Its layout is the hub's: `models--org--name/snapshots/revision`.
    pub(crate) hub: bool,
}

/// What is given; where no path is, the model directory and the hub's cache too. `env` looks a variable up.
pub(crate) fn all(settings: &ModelsSettings, env: &dyn Fn(&str) -> Option<OsString>) -> Vec<Place> {
    let place = |path: &PathBuf, what| Place { path: path.clone(), what, given: true, hub: false };
    let mut places: Vec<Place> = settings.paths.iter().map(|path| place(path, "argument")).collect();
    places.extend(settings.model_dirs.iter().map(|path| place(path, "--model-dir")));
    if settings.paths.is_empty() {
        let usual = [(model_dir(env), "model directory", false), (hub_cache(env), "hub cache", true)];
        let usual = usual
            .into_iter()
            .filter_map(|(path, what, hub)| Some(Place { path: path?, what, given: false, hub }));
        places.extend(usual);
    }
    places
}

fn set(env: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    env(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn model_dir(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let home = || Some(set(env, "HOME")?.join(".cache/superfluid/models"));
    set(env, "SUPERFLUID_MODELS").or_else(home)
}

/// As `huggingface_hub` decides it.
fn hub_cache(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = set(env, "HF_HUB_CACHE").or_else(|| set(env, "HUGGINGFACE_HUB_CACHE"));
    let home = || {
        let cache = || set(env, "XDG_CACHE_HOME").or_else(|| Some(set(env, "HOME")?.join(".cache")));
        set(env, "HF_HOME").or_else(|| Some(cache()?.join("huggingface")))
    };
    named.or_else(|| Some(home()?.join("hub")))
}

/// `org/name` of a path inside the hub's cache.
pub(crate) fn repository(path: &Path) -> Option<String> {
    let folder = path.iter().find_map(|part| part.to_str()?.strip_prefix("models--"))?;
    Some(folder.replacen("--", "/", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> ModelsSettings {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match sf_settings::parse(&words, &|_| None, &Vec::<sf_settings::RuntimeOption>::new()) {
            Ok(sf_settings::Invocation::Models(settings)) => settings,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn places_follow_the_arguments_then_the_environment() {
        let check = |line: &str, env: &[(&str, &str)], expect: &[(&str, &str)]| {
            let lookup =
                |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
            let places = all(&settings(line), &lookup);
            let places: Vec<(String, &str)> =
                places.iter().map(|place| (place.path.display().to_string(), place.what)).collect();
            let expect: Vec<(String, &str)> =
                expect.iter().map(|(path, what)| ((*path).to_owned(), *what)).collect();
            assert_eq!(places, expect, "{line} {env:?}");
        };
        let home = [("HOME", "/h")];
        let usual =
            [("/h/.cache/superfluid/models", "model directory"), ("/h/.cache/huggingface/hub", "hub cache")];
        check("models", &home, &usual);
        check("models --model-dir d", &home, &[&[("d", "--model-dir")], &usual[..]].concat());
        check(
            "models a b --model-dir d",
            &home,
            &[("a", "argument"), ("b", "argument"), ("d", "--model-dir")],
        );
        check("models", &[], &[]);
        let hub = |variables: &[(&str, &str)], expect: &str| {
            check("models", variables, &[("/m", "model directory"), (expect, "hub cache")]);
        };
        hub(&[("SUPERFLUID_MODELS", "/m"), ("HF_HUB_CACHE", "/c"), ("HF_HOME", "/f")], "/c");
        hub(&[("SUPERFLUID_MODELS", "/m"), ("HF_HOME", "/f"), ("XDG_CACHE_HOME", "/x")], "/f/hub");
        hub(&[("SUPERFLUID_MODELS", "/m"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
    }

    #[test]
    fn the_hub_names_repositories_in_its_folders() {
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(repository(Path::new(path)).as_deref(), expect, "{path}");
        };
        check(
            "/c/hub/models--HuggingFaceTB--SmolLM2-135M/snapshots/12fd/m.gguf",
            Some("HuggingFaceTB/SmolLM2-135M"),
        );
        check("/c/hub/models--gpt2/snapshots/1", Some("gpt2"));
        check("/c/hub/models--a--b--c/snapshots/1", Some("a/b--c"));
        check("/home/me/models/m.gguf", None);
    }
}
