//! RMM's resources once more, in plain lists and maps that are searched as the real ones search theirs.

mod arena;
mod pool;

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use vramlab_sim::device::SimMachine;
use vramlab_sim::driver::{DriverError, DriverExt};
use vramlab_sim::testing::Dice;

use crate::golden_cases::{Case, Subject, origin};

/// A device that counts.
struct Device {
    machine: SimMachine,
    chunks: u64,
    refused: u64,
}

impl Device {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        match self.machine.malloc(size) {
            Ok(address) => {
                self.chunks += 1;
                Some(address)
            }
            Err(DriverError::OutOfMemory { .. }) => {
                self.refused += 1;
                None
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// What a model of a resource does.
trait Resource {
    /// Address and size of a block; none: out of memory.
    fn alloc(&mut self, device: &mut Device, size: u64, stream: u64) -> Option<(u64, u64)>;
    /// Of a block that was asked for with `asked` bytes.
    fn free(&mut self, address: u64, asked: u64, stream: u64);
    /// A statistic by its name in the cases.
    fn statistic(&mut self, device: &Device, name: &str) -> Value;
}

/// A resource's model, as a subject.
pub(crate) struct Model {
    columns: Vec<String>,
    base: u64,
    device: Device,
    resource: Result<Box<dyn Resource>, &'static str>,
    /// Address, bytes asked for and block size of live blocks.
    live: HashMap<u64, (u64, u64, u64)>,
}

impl Model {
    /// None for a case of another allocator.
    pub(crate) fn new(case: &Case) -> Option<Self> {
        let mut device = Device { machine: case.machine(), chunks: 0, refused: 0 };
        let resource = match case.text("allocator")? {
            "rmm/pool" => pool::pool(case, &mut device),
            "rmm/binning" => pool::binning(case, &mut device),
            "rmm/arena" => arena::arena(case, &mut device),
            _ => return None,
        };
        let columns = case.columns().into_iter().map(str::to_owned).collect();
        Some(Self { columns, base: case.base(), device, resource, live: HashMap::new() })
    }

    fn statistics(&mut self) -> Vec<Value> {
        let allocated: u64 = self.live.values().map(|(_, _, size)| size).sum();
        let resource = self.resource.as_mut().expect("it was made");
        let column = |name: &String| match name.as_str() {
            "allocated" => json!(allocated),
            "n_chunks" => json!(self.device.chunks),
            "n_dev_failed" => json!(self.device.refused),
            name => resource.statistic(&self.device, name),
        };
        self.columns.iter().map(column).collect()
    }
}

impl Subject for Model {
    fn init(&mut self) -> Option<Vec<Value>> {
        if let Err(why) = self.resource {
            return Some(vec![json!("X"), json!(why)]);
        }
        let mut row = vec![json!("I")];
        row.extend(self.statistics());
        Some(row)
    }

    fn op(&mut self, op: &[Value]) -> Vec<Value> {
        let number = |at: usize| op[at].as_u64().expect("a number");
        let (id, stream) = (number(1), number(op.len() - 1));
        let resource = self.resource.as_mut().expect("it was made");
        let mut row = if op[0] == "a" {
            match number(2) {
                0 => vec![json!("Z")],
                asked => match resource.alloc(&mut self.device, asked, stream) {
                    None => vec![json!("O")],
                    Some((address, size)) => {
                        self.live.insert(id, (address, asked, size));
                        let (_, ordinal, offset) = origin(&self.device.machine, address);
                        let at = address - self.base;
                        vec![json!("A"), json!(at), json!(ordinal), json!(offset), json!(size)]
                    }
                },
            }
        } else {
            let Some((address, asked, _)) = self.live.remove(&id) else { return vec![json!("N")] };
            resource.free(address, asked, stream);
            vec![json!("F")]
        };
        row.extend(self.statistics());
        row
    }

    fn summary(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// It is a model of the rows.
    fn leaves_out(&self, _name: &str) -> bool {
        true
    }
}

const POOL_COLUMNS: &[&str] = &[
    "allocated",
    "reserved",
    "n_chunks",
    "n_free_blocks",
    "largest_free_block",
    "n_lists",
    "n_dev_failed",
];

/// A case by chance.
pub(crate) fn random_case(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let kind = ["rmm/pool", "rmm/arena", "rmm/binning"][(seed % 3) as usize];
    let mut columns = POOL_COLUMNS.to_vec();
    let (config, scale) = match kind {
        "rmm/arena" => {
            columns = POOL_COLUMNS[..5].to_vec();
            columns.extend(["n_global_superblocks", "n_stream_superblocks"]);
            columns.extend(["n_stream_syncs", "n_device_syncs"]);
            (json!({"arena_size": (4 << 20) + dice.below(28 << 20)}), 22)
        }
        kind => {
            let initial = dice.below(3) * 256 * dice.below(300);
            let maximum = initial + 256 * dice.below(4000);
            let maximum = if dice.below(2) == 0 { json!(maximum) } else { Value::Null };
            let mut config = json!({"initial": initial, "maximum": maximum});
            if kind == "rmm/binning" {
                columns.extend(["n_bin_free", "n_waits"]);
                let min = 6 + dice.below(5);
                config["min_exp"] = json!(min);
                config["max_exp"] = json!(min + dice.below(3));
            } else {
                columns.push("waited_streams");
            }
            (config, 17)
        }
    };
    let placement = ["bump", "first_fit"][dice.below(2) as usize];
    let capacity = if scale == 17 { (1 << 19) + dice.below(3 << 20) } else { 1 << 30 };
    let granularity = 256 << dice.below(4);
    let case = json!({
        "allocator": kind,
        "config": config,
        "device": {"capacity": capacity, "granularity": granularity, "placement": placement},
        "stat_columns": columns,
        "ops": random_ops(&mut dice, scale),
    });
    let Value::Object(all) = case else { return Case { name: String::new(), all: Map::new() } };
    Case { name: format!("random case {seed}"), all }
}

/// Up to 60 live blocks of up to 2^`scale` bytes, on up to four streams; one free in five names another stream.
fn random_ops(dice: &mut Dice, scale: u64) -> Vec<Value> {
    let (mut ops, mut live) = (Vec::new(), Vec::<(u64, u64)>::new());
    let (streams, most) = (1 + dice.below(4), 5 + dice.below(55));
    for id in 0..400_u64 {
        let stream = dice.below(streams);
        if (live.len() as u64) < most && dice.below(20) < 12 {
            let top = 1 << dice.below(scale + 1);
            let size = if dice.below(40) == 0 { 0 } else { top / 2 + dice.below(top) };
            ops.push(json!(["a", id, size, stream]));
            live.push((id, stream));
        } else if !live.is_empty() {
            let (id, own) = live.swap_remove(dice.below(live.len() as u64) as usize);
            ops.push(json!(["f", id, if dice.below(5) == 0 { stream } else { own }]));
        }
    }
    ops
}
