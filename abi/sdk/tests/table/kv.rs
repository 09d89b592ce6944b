//! Saving and restoring lanes: what comes back continues, and what is foreign, damaged or too long is refused by its code.

use std::ptr::null_mut;

use sf_abi_sdk::sf_abi::*;

use crate::UNSAVED;
use crate::host::{Arena, Open, Refusal, call, engine, open, open_with, option};

fn table(model: &Open) -> &'static SfrKvVt {
    // SAFETY: a live model and an id by the header.
    let table = unsafe { engine().get_interface.unwrap()(model.0, SF_KV_1.as_ptr()) };
    // SAFETY: the model forks, so the table is there.
    unsafe { table.cast::<SfrKvVt>().as_ref() }.unwrap()
}

/// A lane that was fed `tokens`.
fn fed(model: &Open, tokens: &[u32]) -> u64 {
    let lane = model.lane();
    model.step(&Arena::new(&[(lane, 0, tokens)])).ok().unwrap();
    lane
}

fn export_into(model: &Open, lane: u64, upto: u32, bytes: &mut [u8]) -> (Result<(), Refusal>, u64) {
    let mut buf = SfrBuf { p: bytes.as_mut_ptr().cast(), cap: bytes.len() as u64, needed: 0 };
    // SAFETY: a live model; the buffer is ours.
    let result =
        call(|err| unsafe { table(model).export_state.unwrap()(model.0, lane, upto, &mut buf, err) });
    (result, buf.needed)
}

fn export(model: &Open, lane: u64, upto: u32) -> Result<Vec<u8>, Refusal> {
    let mut size = 0;
    // SAFETY: a live model.
    call(|err| unsafe { table(model).export_size.unwrap()(model.0, lane, upto, &mut size, err) })?;
    let mut bytes = vec![0xAA; size as usize];
    let (result, needed) = export_into(model, lane, upto, &mut bytes);
    assert_eq!(needed, size);
    result.map(|()| bytes)
}

fn import(model: &Open, bytes: &[u8]) -> Result<u64, Refusal> {
    let mut lane = 0;
    let import = table(model).import_state.unwrap();
    // SAFETY: a live model; the bytes are ours for the call.
    call(|err| unsafe { import(model.0, bytes.as_ptr().cast(), bytes.len() as u64, &mut lane, err) })
        .map(|()| lane)
}

#[test]
fn a_restored_lane_goes_on_where_the_saved_one_stood() {
    let model = open();
    let saved = export(&model, fed(&model, &[1, 2, 3]), 2).ok().unwrap();
    let other = open();
    for model in [&model, &other] {
        let lane = import(model, &saved).ok().unwrap();
        let (outs, rows) = model.step(&Arena::new(&[(lane, 2, &[4])])).ok().unwrap();
        assert_eq!((outs, rows), (vec![(0, 3, 1)], vec![7]), "1 + 2 + 4");
    }
}

#[test]
fn a_part_that_is_not_there_and_a_small_buffer_are_refused() {
    let model = open();
    let lane = fed(&model, &[1, 2, 3]);
    for upto in [0, 4] {
        let refusal = export(&model, lane, upto).err().unwrap();
        assert_eq!((refusal.code, refusal.field.as_str()), (SFR_E_ARG, "upto"));
    }
    assert_eq!(export(&model, lane + 1, 1).err().unwrap().code, SFR_E_NOT_FOUND);
    let mut small = [0xAAu8; 70];
    let (refusal, needed) = export_into(&model, lane, 3, &mut small);
    assert_eq!((refusal.err().unwrap().code, needed), (SFR_E_SMALL_BUFFER, 64 + 12));
    assert!(small.iter().all(|&byte| byte == 0xAA), "nothing was written");
    // SAFETY: no buffer at all is refused.
    let none = call(|err| unsafe { table(&model).export_state.unwrap()(model.0, lane, 3, null_mut(), err) });
    assert_eq!(none.err().unwrap().code, SFR_E_ARG);
}

#[test]
fn a_foreign_a_damaged_and_an_overlong_state_are_told_apart() {
    let model = open();
    let saved = export(&model, fed(&model, &[1, 2, 3]), 3).ok().unwrap();
    let mut scale = [option("x.sums.scale", SFR_T_F64, 0, 2.0, true)];
    let other = open_with("/model", &mut scale).ok().unwrap();
    assert_eq!(import(&other, &saved).err().unwrap().code, SFR_E_IDENTITY);
    assert_eq!(
        import(&model, b"not a saved state, but as long as the head of one is, and more...")
            .err()
            .unwrap()
            .code,
        SFR_E_IDENTITY
    );
    let mut damaged = saved.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for bytes in [&damaged[..], &saved[..saved.len() - 1], &saved[..20], &[]] {
        assert_eq!(import(&model, bytes).err().unwrap().code, SFR_E_CHECKSUM, "{} bytes", bytes.len());
    }
    // SAFETY: bytes that are not there are refused.
    let nowhere = call(|err| unsafe {
        table(&model).import_state.unwrap()(model.0, std::ptr::null(), 80, &mut 0, err)
    });
    assert_eq!(nowhere.err().unwrap().code, SFR_E_ABI);
    let lanes = [import(&model, &saved), import(&model, &saved)].map(|lane| lane.ok().unwrap());
    let full = import(&model, &saved).err().unwrap();
    assert_eq!(
        (full.code, full.field.as_str()),
        (SFR_E_CAPACITY, "lanes.max"),
        "a refusal leaves no lane behind"
    );
    assert_ne!(lanes[0], lanes[1]);
}

#[test]
fn a_panic_in_an_export_costs_the_model_and_not_the_process() {
    let model = open();
    let lane = fed(&model, &[UNSAVED]);
    let refusal = export(&model, lane, 1).err().unwrap();
    assert_eq!((refusal.code, refusal.scope), (SFR_E_INTERNAL, SFR_SCOPE_MODEL));
    assert!(refusal.message.contains("cannot be saved"), "{}", refusal.message);
    assert_eq!(import(&model, &[]).err().unwrap().code, SFR_E_STATE);
}

#[test]
fn a_model_that_does_not_export_offers_forks_alone() {
    let mut exports = [option("x.sums.exports", SFR_T_BOOL, 0, 0.0, true)];
    let model = open_with("/model", &mut exports).ok().unwrap();
    let table = table(&model);
    assert!(table.fork.is_some());
    assert!(table.export_size.is_none() && table.export_state.is_none() && table.import_state.is_none());
}
