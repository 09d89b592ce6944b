//! The function tables of the header: the runtime object, the engine and the optional interfaces.
#![allow(missing_docs, reason = "the C header documents each entry; two copies would drift")]

use core::ffi::{c_char, c_void};

use crate::mirror::*;

/// Opaque: a model that a runtime opened.
#[repr(C)]
pub struct SfrModel {
    _opaque: [u8; 0],
}

/// Opaque: a tokenizer that a runtime opened.
#[repr(C)]
pub struct SfrTokenizer {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrEngineVt {
    pub struct_size: u32,
    pub reserved0: u32,
    pub open: Option<
        unsafe extern "C" fn(req: *const SfrOpen, out: *mut *mut SfrModel, err: *mut SfrError) -> SfrStatus,
    >,
    pub close: Option<unsafe extern "C" fn(model: *mut SfrModel)>,
    pub describe: Option<
        unsafe extern "C" fn(model: *mut SfrModel, json: *mut SfrBuf, err: *mut SfrError) -> SfrStatus,
    >,
    pub lane_create:
        Option<unsafe extern "C" fn(model: *mut SfrModel, lane: *mut u64, err: *mut SfrError) -> SfrStatus>,
    pub lane_free:
        Option<unsafe extern "C" fn(model: *mut SfrModel, lane: u64, err: *mut SfrError) -> SfrStatus>,
    pub lane_truncate: Option<
        unsafe extern "C" fn(
            model: *mut SfrModel,
            lane: u64,
            want: u32,
            got: *mut u32,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub step_begin: Option<
        unsafe extern "C" fn(
            model: *mut SfrModel,
            plan: *const SfrPlan,
            ticket: *mut u64,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub step_end: Option<
        unsafe extern "C" fn(
            model: *mut SfrModel,
            ticket: u64,
            result: *mut SfrResult,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub stats: Option<unsafe extern "C" fn(model: *mut SfrModel, out: *mut SfrStats) -> SfrStatus>,
    pub get_interface: Option<unsafe extern "C" fn(model: *mut SfrModel, id: *const c_char) -> *const c_void>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrInspectVt {
    pub struct_size: u32,
    pub reserved0: u32,
    pub inspect:
        Option<unsafe extern "C" fn(req: *const SfrOpen, json: *mut SfrBuf, err: *mut SfrError) -> SfrStatus>,
    pub estimate: Option<
        unsafe extern "C" fn(req: *const SfrOpen, out: *mut SfrEstimate, err: *mut SfrError) -> SfrStatus,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrTokenizerVt {
    pub struct_size: u32,
    pub reserved0: u32,
    pub open: Option<
        unsafe extern "C" fn(
            req: *const SfrOpen,
            out: *mut *mut SfrTokenizer,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub close: Option<unsafe extern "C" fn(tokenizer: *mut SfrTokenizer)>,
    pub encode: Option<
        unsafe extern "C" fn(
            tokenizer: *mut SfrTokenizer,
            text: SfrStr,
            flags: u32,
            out: *mut SfrBuf,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub token_bytes: Option<
        unsafe extern "C" fn(
            tokenizer: *mut SfrTokenizer,
            first: u32,
            count: u32,
            ends: *mut u32,
            bytes: *mut SfrBuf,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub facts: Option<
        unsafe extern "C" fn(
            tokenizer: *mut SfrTokenizer,
            json: *mut SfrBuf,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrKvVt {
    pub struct_size: u32,
    pub reserved0: u32,
    pub fork: Option<
        unsafe extern "C" fn(
            model: *mut SfrModel,
            parent: u64,
            upto: u32,
            child: *mut u64,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub export_size: Option<
        unsafe extern "C" fn(
            model: *mut SfrModel,
            lane: u64,
            upto: u32,
            bytes: *mut u64,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub export_state: Option<
        unsafe extern "C" fn(
            model: *mut SfrModel,
            lane: u64,
            upto: u32,
            out: *mut SfrBuf,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
    pub import_state: Option<
        unsafe extern "C" fn(
            model: *mut SfrModel,
            bytes: *const c_void,
            len: u64,
            lane: *mut u64,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrEmbedVt {
    pub struct_size: u32,
    pub reserved0: u32,
    pub embed: Option<
        unsafe extern "C" fn(
            model: *mut SfrModel,
            req: *const SfrEmbed,
            out: *mut SfrBuf,
            err: *mut SfrError,
        ) -> SfrStatus,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrRuntime {
    pub struct_size: u32,
    pub abi_major: u32,
    pub abi_minor: u32,
    pub abi_minor_min_host: u32,
    pub descriptor_json: SfrStr,
    pub init: Option<unsafe extern "C" fn(host: *const SfrHost, err: *mut SfrError) -> SfrStatus>,
    pub shutdown: Option<unsafe extern "C" fn()>,
    pub probe: Option<
        unsafe extern "C" fn(req: *const SfrProbe, json: *mut SfrBuf, err: *mut SfrError) -> SfrStatus,
    >,
    pub get_interface: Option<unsafe extern "C" fn(id: *const c_char) -> *const c_void>,
}

/// Type of the one exported symbol.
pub type SfrEntryFn = unsafe extern "C" fn(query: *const SfrQuery) -> *const SfrRuntime;
