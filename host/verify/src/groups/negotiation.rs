//! Group `negotiation`: the entry, versions, tables and interface ids. No model is opened.

use std::ffi::{CStr, CString};

use sf_abi::descriptor::Descriptor;
use sf_abi::{
    SF_ENGINE_1, SF_INSPECT_1, SF_TOKENIZER_1, SFR_ABI_MINOR, SFR_E_FORMAT, SFR_E_NOT_FOUND, SfrEngineVt,
    SfrQuery,
};

use crate::child::Subject;
use crate::image::{Image, descriptor_text};
use crate::journal::{Broken, Found, Journal, broken, ensure};
use crate::memory::Guarded;
use crate::options::OpenCall;
use crate::raw::{Bound, Entry, own_query, refused, short_records, worked};

/// Threads and queries of the concurrent check.
const THREADS: usize = 16;
const QUERIES: usize = 10_000;
/// Length of the longest id, bytes.
const LONG_ID: usize = 64 << 10;
/// Ids whose tables a later minor declares.
const RESERVED: [&CStr; 7] = [
    c"sf.sampler/1",
    c"sf.lora/1",
    c"sf.embed/1",
    c"sf.media/1",
    c"sf.transcribe/1",
    c"sf.spec/1",
    c"sf.stage/1",
];

pub(super) fn run(subject: &Subject, journal: &mut Journal<'_>) {
    let mut entry = None;
    journal.check("load", || {
        entry = Some(Entry::load(&subject.library)?);
        Ok("loaded".to_owned())
    });
    let Some(entry) = entry else { return };
    journal.check("foreign-versions", || foreign_versions(entry));
    journal.check("query-sizes", || query_sizes(entry));
    journal.check("query-is-pure", || query_is_pure(entry));
    let mut bound = None;
    journal.check("runtime-table", || {
        let read = Bound::read(entry.ask_plainly())?;
        bound = Some(read);
        Ok("complete".to_owned())
    });
    let Some(bound) = bound else { return };
    journal.check("descriptor-is-the-sections", || {
        let bytes =
            std::fs::read(&subject.library).map_err(|error| broken!("cannot read the library: {error}"))?;
        let image = Image::parse(&bytes)?;
        let same = bound.descriptor()? == descriptor_text(&image)?;
        ensure!(same, "descriptor_json differs from the descriptor section");
        Ok("the same bytes".to_owned())
    });
    let begun = journal.check("init", || {
        worked(bound.init(), "init")?;
        Ok("done".to_owned())
    });
    if !begun {
        return;
    }
    let mut engine = None;
    journal.check("engine-table", || {
        engine = Some(bound.engine()?);
        Ok("complete".to_owned())
    });
    journal.check("interfaces-as-declared", || interfaces_as_declared(&bound));
    journal.check("unknown-ids", || unknown_ids(&bound));
    if let Some(engine) = engine {
        journal.check("error-records", || error_records(&engine));
    }
    journal.check("shutdown", || {
        bound.shutdown();
        Ok("returned".to_owned())
    });
}

fn foreign_versions(entry: Entry) -> Found {
    let own = own_query();
    let with =
        |major: u32, minor: u32| SfrQuery { abi_major: major, abi_minor: minor, abi_minor_min: minor, ..own };
    let minor = own.abi_minor;
    let foreign =
        [(1, minor), (2, minor), (u32::MAX, minor), (0, minor - 1), (0, minor + 1), (0, u32::MAX), (1, 0)];
    for (major, minor) in foreign {
        let table = entry.ask(&Guarded::holding(&with(major, minor), &[]));
        ensure!(table.is_null(), "a host of ABI {major}.{minor} was given a table");
    }
    ensure!(
        !entry.ask_plainly().is_null(),
        "a host of ABI {}.{} was given NULL",
        own.abi_major,
        own.abi_minor
    );
    Ok(format!("{} refused", foreign.len()))
}

fn query_sizes(entry: Entry) -> Found {
    let own = own_query();
    for size in [0u32, 4, 8, 12] {
        let short = SfrQuery { struct_size: size, ..own };
        ensure!(
            entry.ask(&Guarded::holding(&short, &[])).is_null(),
            "a query of {size} bytes was given a table"
        );
    }
    let long = |tail: &[u8]| {
        let struct_size = own.struct_size + u32::try_from(tail.len()).expect("short");
        entry.ask(&Guarded::holding(&SfrQuery { struct_size, ..own }, tail))
    };
    ensure!(!long(&[0; 16]).is_null(), "a longer query with a zero tail was given NULL");
    // The entry cannot say why. Whether a tail it does not know makes it refuse is told, not judged.
    let strict = long(&[0, 0, 0, 0, 0, 0, 0, 1]).is_null();
    Ok(format!("short refused, long taken, a set tail {}", if strict { "refused" } else { "taken" }))
}

fn query_is_pure(entry: Entry) -> Found {
    let first = entry.ask_plainly().addr();
    let ask = |_| {
        std::thread::spawn(move || {
            let query = Guarded::holding(&own_query(), &[]);
            (0..QUERIES / THREADS).all(|_| entry.ask(&query).addr() == first)
        })
    };
    let threads: Vec<_> = (0..THREADS).map(ask).collect();
    // Every thread is joined, also when an earlier one saw another table.
    let same =
        threads.into_iter().map(|thread| thread.join().is_ok_and(|same| same)).filter(|same| *same).count();
    ensure!(same == THREADS, "not every one of {QUERIES} queries gave the same table");
    Ok(format!("{QUERIES} queries from {THREADS} threads, one table"))
}

fn declared(bound: &Bound) -> Result<Descriptor, Broken> {
    serde_json::from_str(bound.descriptor()?)
        .map_err(|error| broken!("the descriptor does not parse: {error}"))
}

fn interfaces_as_declared(bound: &Bound) -> Found {
    let descriptor = declared(bound)?;
    for id in [SF_ENGINE_1, SF_INSPECT_1, SF_TOKENIZER_1] {
        let name = id.to_str().expect("ASCII");
        let says = descriptor.interfaces.iter().any(|declared| declared == name);
        let gives = !bound.interface(id).is_null();
        ensure!(says == gives, "{name}: declared {says}, given {gives}");
        let again = bound.interface(id) == bound.interface(id);
        ensure!(again, "{name}: another table each time");
    }
    bound.inspect()?;
    Ok(descriptor.interfaces.join(", "))
}

fn unknown_ids(bound: &Bound) -> Found {
    let long = "a".repeat(LONG_ID);
    let made = [
        String::new(),
        "sf".to_owned(),
        "sf.engine".to_owned(),
        "sf.engine/".to_owned(),
        "sf.engine/0".to_owned(),
        "sf.engine/1x".to_owned(),
        "sf.engine/1 ".to_owned(),
        "sf.engine/10".to_owned(),
        "sf.engine/2".to_owned(),
        "SF.ENGINE/1".to_owned(),
        " sf.engine/1".to_owned(),
        "acme.secret/1".to_owned(),
        format!("sf.engine/1{long}"),
        long,
    ];
    for id in &made {
        let shown: String = id.chars().take(20).collect();
        let id = CString::new(id.as_str()).expect("no NUL inside");
        ensure!(
            bound.interface(&id).is_null(),
            "get_interface({shown:?}, {} bytes) is not NULL",
            id.count_bytes()
        );
    }
    for id in RESERVED {
        ensure!(
            bound.interface(id).is_null(),
            "get_interface({id:?}) is not NULL, but ABI 0.{SFR_ABI_MINOR} has no such table of a runtime"
        );
    }
    Ok(format!("{} refused", made.len() + RESERVED.len()))
}

fn error_records(engine: &SfrEngineVt) -> Found {
    let laid = OpenCall::of("/no/such/folder/no-such-model".as_ref()).lay();
    let refusal = refused(laid.open(engine), &[SFR_E_NOT_FOUND, SFR_E_FORMAT], "open of a missing file")?;
    short_records(refusal.code, |err| laid.status_of_open(engine, err))
}

/// Reads the table and initialises, as the first check of a group that goes on from there.
pub(super) fn started(subject: &Subject, journal: &mut Journal<'_>) -> Option<(Bound, Descriptor)> {
    let mut bound = None;
    journal.check("start", || {
        let started = Bound::start(&subject.library)?;
        let descriptor = declared(&started)?;
        bound = Some((started, descriptor));
        Ok("loaded and initialised".to_owned())
    });
    bound
}
