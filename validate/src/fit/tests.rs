//! The simulated machine has a cost table that is known: measured and fitted, it must come out again.

use vramlab_sim::SimMachine;
use vramlab_sim::device::profile::{Profile, device};
use vramlab_sim::driver::CALL_NAMES;

use super::*;
use crate::measure::measure;
use crate::stop::Stop;

/// Measurements of a simulated device, each time varied by up to 10 %, seeded.
fn measured(profile: &Profile) -> Measured {
    let options = profile.options.clone();
    let (room, granule) = (options.capacity - options.context, options.granule);
    let mut machine = SimMachine::new(options.clone());
    let (rows, refused) = measure(&mut machine, 5, (room, granule), &Stop::default());
    assert_eq!(refused, Vec::<String>::new());
    let mut state = 7_u64;
    let mut draw = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    let vary = |row: &Row| {
        let noisy = (0..200).map(|_| {
            let share = 1.0 + 0.1 * (draw() + draw() - 1.0);
            (row.quantiles.p50 as f64 * share).round() as u64
        });
        Row::of(&row.what, &row.state, row.bytes, row.count, noisy.collect())
    };
    let rows = rows.iter().map(vary).collect();
    let head = Head {
        device: "simulated".into(),
        driver: "13.0".into(),
        date: "2026-11-30".into(),
        capacity: options.capacity,
        granule,
        pack_small: Some(options.pack_small),
    };
    Measured { head, rows }
}

#[test]
fn a_known_table_is_recovered_within_the_stated_error() {
    let known = device("generic").expect("built in");
    let fit = fit(&measured(&known));
    let mut compared = 0;
    for Fitted { name, line, .. } in &fit.prices {
        let Some(kind) = CALL_NAMES.iter().position(|call| call == name) else { continue };
        let price = known.options.costs.call(kind);
        let near = |found: f64, wanted: f64, error: f64| (found - wanted).abs() <= error + 1.0;
        assert!(near(line.base, price.base_ns, line.base_error), "{name}: {line:?}, {price:?}");
        let slope = price.per_granule_ns;
        assert!(near(line.slope, slope, line.slope_error), "{name}: {line:?}, {price:?}");
        assert!(line.base_error < price.base_ns * 0.05 + 1.0, "{name}: {line:?}");
        compared += 1;
    }
    assert!(compared >= 14, "{compared} prices");
    for (name, link) in [
        ("host_to_device", known.options.links.host_to_device),
        ("device_to_device", known.options.links.device_to_device),
    ] {
        let line = fit.links.iter().find(|fitted| fitted.name == name).expect("fitted").line;
        let wanted = 1e9 / link.bytes_per_second;
        assert!((line.slope - wanted).abs() <= line.slope_error + 1e-6, "{name}: {line:?}");
        assert!((line.base - link.latency_ns as f64).abs() <= line.base_error + 1.0, "{line:?}");
    }
}

#[test]
fn the_device_file_is_read_again_and_prices_as_it_says() {
    let known = device("a100-80gb").expect("built in");
    let fit = fit(&measured(&known));
    let text = render::device_file(&fit, "mine", "a100-80gb");
    assert!(text.is_err(), "a device that is based on another is no base");
    let text = render::device_file(&fit, "mine", "generic").expect("written");
    let read = Profile::parse(&text).expect("read");
    assert!(read.measured && read.name == "mine");
    assert_eq!(read.options.capacity, known.options.capacity);
    let malloc = CALL_NAMES.iter().position(|name| *name == "cudaMalloc").expect("a call");
    let price = read.options.costs.call(malloc);
    assert!((price.base_ns - 50_000.0).abs() < 1500.0, "{price:?}");
    assert!((price.per_granule_ns - 332.0).abs() < 15.0, "{price:?}");
}
