//! The tables of a runtime and the macro that exports them. Only the macro is meant to be used.
#![expect(unsafe_code, reason = "reads the host's query at the exported symbol")]

use core::marker::PhantomData;
use std::sync::OnceLock;

use sf_abi::*;

use crate::fault::Fault;
use crate::host::HostCell;
use crate::runtime::{Model, Runtime};
use crate::slots;

/// A longer query than any minor of this major could have is not a query.
const QUERY_BYTES_MAX: usize = 4096;

/// What [`crate::export_runtime!`] adds to a [`Runtime`].
#[doc(hidden)]
pub trait Exported: Runtime {
    /// The descriptor's exact bytes.
    const DESCRIPTOR: &'static str;
    /// Where the one value lives.
    fn slot() -> &'static Slot<Self>;
}

/// The static of a runtime: its value and the host it talks to.
#[doc(hidden)]
#[derive(Debug)]
pub struct Slot<R> {
    host: HostCell,
    runtime: OnceLock<R>,
}

impl<R: Runtime> Slot<R> {
    /// Not initialised.
    #[expect(clippy::new_without_default, reason = "only the macro makes one, in a static")]
    pub const fn new() -> Slot<R> {
        Slot { host: HostCell::new(), runtime: OnceLock::new() }
    }

    pub(crate) fn runtime(&self) -> Option<&R> {
        self.runtime.get()
    }

    /// A second `init` only moves the services to the new host.
    pub(crate) fn init(&'static self, table: SfrHost) -> Result<(), Fault> {
        let host = self.host.set(table);
        if self.runtime.get().is_none() {
            let runtime = R::init(host)?;
            // `init` is [main], hence serialised: nobody else can have set it.
            let _ = self.runtime.set(runtime);
        }
        Ok(())
    }
}

/// The constant tables of a runtime.
#[doc(hidden)]
#[derive(Debug)]
pub struct Tables<R>(PhantomData<R>);

impl<R: Exported> Tables<R> {
    pub(crate) const ENGINE: &'static SfrEngineVt = &SfrEngineVt {
        struct_size: size_of::<SfrEngineVt>() as u32,
        reserved0: 0,
        open: Some(slots::open::<R>),
        close: Some(slots::close::<R>),
        describe: Some(slots::describe::<R>),
        lane_create: Some(slots::lane_create::<R>),
        lane_free: Some(slots::lane_free::<R>),
        lane_truncate: Some(slots::lane_truncate::<R>),
        step_begin: Some(slots::step_begin::<R>),
        step_end: Some(slots::step_end::<R>),
        stats: Some(slots::stats::<R>),
        get_interface: Some(slots::model_interface::<R>),
    };
    /// For a model that does not export.
    const KV_FORK: &'static SfrKvVt = &SfrKvVt {
        struct_size: size_of::<SfrKvVt>() as u32,
        reserved0: 0,
        fork: if <R::Model as Model>::FORK { Some(slots::fork::<R>) } else { None },
        export_size: None,
        export_state: None,
        import_state: None,
    };
    /// For one that does.
    const KV_EXPORT: &'static SfrKvVt = &SfrKvVt {
        struct_size: size_of::<SfrKvVt>() as u32,
        reserved0: 0,
        fork: if <R::Model as Model>::FORK { Some(slots::fork::<R>) } else { None },
        export_size: Some(slots::export_size::<R>),
        export_state: Some(slots::export_state::<R>),
        import_state: Some(slots::import_state::<R>),
    };
    /// For a model that makes vectors.
    pub(crate) const EMBED: &'static SfrEmbedVt = &SfrEmbedVt {
        struct_size: size_of::<SfrEmbedVt>() as u32,
        reserved0: 0,
        embed: Some(slots::embed::<R>),
    };
    pub(crate) const INSPECT: &'static SfrInspectVt = &SfrInspectVt {
        struct_size: size_of::<SfrInspectVt>() as u32,
        reserved0: 0,
        inspect: Some(slots::inspect::<R>),
        estimate: Some(slots::estimate::<R>),
    };
    pub(crate) const TOKENIZER: &'static SfrTokenizerVt = &SfrTokenizerVt {
        struct_size: size_of::<SfrTokenizerVt>() as u32,
        reserved0: 0,
        open: Some(slots::tokenizer_open::<R>),
        close: Some(slots::tokenizer_close::<R>),
        encode: Some(slots::encode::<R>),
        token_bytes: Some(slots::token_bytes::<R>),
        facts: Some(slots::facts::<R>),
    };
    const RUNTIME: &'static SfrRuntime = &SfrRuntime {
        struct_size: size_of::<SfrRuntime>() as u32,
        abi_major: SFR_ABI_MAJOR,
        abi_minor: SFR_ABI_MINOR,
        abi_minor_min_host: SFR_ABI_MINOR,
        descriptor_json: SfrStr { p: R::DESCRIPTOR.as_ptr().cast(), n: R::DESCRIPTOR.len() as u64 },
        init: Some(slots::init::<R>),
        shutdown: Some(slots::shutdown::<R>),
        probe: Some(slots::probe::<R>),
        get_interface: Some(slots::get_interface::<R>),
    };

    /// `sf.kv/1` of a model, if it has any of it.
    pub(crate) fn kv(exports: bool) -> Option<&'static SfrKvVt> {
        if exports { Some(Self::KV_EXPORT) } else { <R::Model as Model>::FORK.then_some(Self::KV_FORK) }
    }

    /// The answer of the exported symbol. Pure. While the major is 0 both numbers must be the same.
    ///
    /// # Safety
    /// `query` is NULL or follows the header.
    pub unsafe fn entry(query: *const SfrQuery) -> *const SfrRuntime {
        // Not `wire::read`: its error would allocate, and this function must not.
        if query.is_null() || !query.addr().is_multiple_of(8) {
            return core::ptr::null();
        }
        // SAFETY: aligned, and the host promises at least the size word.
        let size = unsafe { query.cast::<u32>().read() } as usize;
        if size < size_of::<SfrQuery>() || size > QUERY_BYTES_MAX {
            return core::ptr::null();
        }
        let tail = query.cast::<u8>().wrapping_add(size_of::<SfrQuery>());
        for at in 0..size - size_of::<SfrQuery>() {
            // SAFETY: within the size that the host's own header gives the struct.
            let byte = unsafe { tail.wrapping_add(at).read() };
            // A field of a later minor that is set is a question we cannot answer (L4).
            if byte != 0 {
                return core::ptr::null();
            }
        }
        // SAFETY: the size covers the struct.
        let query = unsafe { query.read() };
        let same = query.abi_major == SFR_ABI_MAJOR
            && query.abi_minor == SFR_ABI_MINOR
            && query.abi_minor_min <= SFR_ABI_MINOR;
        if same { Self::RUNTIME } else { core::ptr::null() }
    }
}

/// Exports a [`Runtime`](crate::Runtime): the symbol `superfluid_runtime_v1`, the tables behind it, and the section
/// with the descriptor. Once per library.
///
/// The descriptor is canonical JSON without a final newline: the same bytes stand in `runtime.json`.
#[macro_export]
macro_rules! export_runtime {
    ($runtime:ty, descriptor = $descriptor:expr) => {
        #[allow(unsafe_code, reason = "the one exported symbol and the descriptor's section")]
        #[doc(hidden)]
        pub mod superfluid_export {
            #[allow(unused_imports, reason = "the runtime may be named by a path")]
            use super::*;
            use $crate::export::{Exported, Slot, Tables};
            use $crate::sf_abi::{SfrQuery, SfrRuntime};

            const TEXT: &str = $descriptor;

            impl Exported for $runtime {
                const DESCRIPTOR: &'static str = TEXT;
                fn slot() -> &'static Slot<Self> {
                    static SLOT: Slot<$runtime> = Slot::new();
                    &SLOT
                }
            }

            // SAFETY: a read-only array in a section that nothing else writes to.
            #[used]
            #[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__sfr_desc"))]
            #[cfg_attr(target_os = "linux", unsafe(link_section = ".sfr_desc"))]
            static SECTION: [u8; TEXT.len()] = *TEXT.as_bytes().first_chunk().expect("its own length");

            /// The one exported symbol; see `superfluid_runtime.h`.
            ///
            /// # Safety
            /// `query` is NULL or follows the header.
            // SAFETY: the name is the contract; a library has one runtime.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn superfluid_runtime_v1(query: *const SfrQuery) -> *const SfrRuntime {
                // SAFETY: the caller's promise.
                unsafe { Tables::<$runtime>::entry(query) }
            }
        }
    };
}
