//! The rules that no recording shows, over a cache that counts tokens.

use super::*;

/// So many tokens in all; finds nothing.
struct Cache {
    free: u64,
    /// By request: tokens that it has slots for.
    held: Vec<u64>,
    copied: Vec<(bool, u64)>,
    /// Plan a step before the last one is completed.
    ahead: bool,
}

impl Cache {
    fn of(tokens: u64) -> Self {
        Self { free: tokens, held: vec![0; 16], copied: Vec::new(), ahead: false }
    }

    fn take(&mut self, request: RequestId, tokens: u64, room: u64) -> Answered {
        if room > self.free {
            return Answered::OutOfMemory;
        }
        self.free -= tokens;
        self.held[request.0 as usize] += tokens;
        Answered::Slots { hit: 0, blocks: tokens }
    }

    /// Runs a step; what was planned, as (request, tokens, computed before).
    fn step(&mut self, scheduler: &mut Scheduler) -> Vec<(u32, u64, u64)> {
        let (mut answer, mut plan) = (Answered::Done, Vec::new());
        loop {
            answer = match scheduler.next(answer) {
                Ask::New(NewSlots { request, tokens, chunk, whole, reserve, .. }) => {
                    let now = tokens.min(chunk.unwrap_or(u64::MAX));
                    if whole && tokens > now {
                        Answered::OutOfMemory
                    } else {
                        self.take(request, now, if reserve { tokens } else { now })
                    }
                }
                Ask::More { request, from, tokens } => {
                    assert_eq!(self.held[request.0 as usize], from);
                    self.take(request, tokens, tokens)
                }
                Ask::Free(request) => {
                    self.free += std::mem::take(&mut self.held[request.0 as usize]);
                    Answered::Done
                }
                Ask::SwapOut { tokens, .. } => {
                    self.copied.push((false, tokens));
                    Answered::Done
                }
                Ask::SwapIn { tokens, .. } => {
                    self.copied.push((true, tokens));
                    Answered::Done
                }
                Ask::Planned => {
                    plan = scheduler
                        .plan()
                        .iter()
                        .map(|p| (p.request.0, p.tokens, p.computed))
                        .collect();
                    scheduler.launch();
                    if scheduler.flights() > 1 || plan.is_empty() || !self.ahead {
                        scheduler.complete();
                        Answered::Done
                    } else {
                        return plan;
                    }
                }
                Ask::Idle => return plan,
            };
        }
    }
}

fn request(prompt: u64, max_tokens: u64) -> Pending {
    Pending { prompt, max_tokens, priority: 0 }
}

#[test]
fn swap_keeps_what_was_computed_and_copies_it_back() {
    let mut scheduler = Scheduler::new(Config { swap_tokens: 100, ..Config::default() });
    let mut cache = Cache::of(10);
    scheduler.add(request(4, 4));
    scheduler.add(request(4, 3));
    assert_eq!(cache.step(&mut scheduler), [(0, 4, 0), (1, 4, 0)]);
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 4), (1, 1, 4)]);
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 5)], "the second makes room");
    assert_eq!(
        (scheduler.preempted(), &cache.copied[..]),
        (&[RequestId(1)][..], &[(false, 5)][..])
    );
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 6)]);
    assert_eq!(cache.step(&mut scheduler), [(1, 1, 5)], "nothing is computed again");
    assert_eq!((cache.copied.last(), cache.free), (Some(&(true, 5)), 10));
}

#[test]
fn without_room_in_host_memory_a_preempted_request_is_computed_again() {
    let mut scheduler = Scheduler::new(Config { swap_tokens: 4, ..Config::default() });
    let mut cache = Cache::of(10);
    scheduler.add(request(4, 4));
    scheduler.add(request(4, 3));
    for _ in 0..4 {
        cache.step(&mut scheduler);
    }
    assert_eq!(cache.step(&mut scheduler), [(1, 6, 0)]);
    assert!(cache.copied.is_empty());
}

#[test]
fn static_reservation_takes_prompt_and_output_at_once_and_preempts_nobody() {
    let mut scheduler = Scheduler::new(Config { static_reservation: true, ..Config::default() });
    let mut cache = Cache::of(10);
    scheduler.add(request(4, 4));
    scheduler.add(request(1, 2));
    assert_eq!(cache.step(&mut scheduler), [(0, 4, 0)]);
    assert_eq!(cache.free, 2, "8 of 10 are taken for 4 tokens; the second wants 3");
    for step in 0..3 {
        assert_eq!(cache.step(&mut scheduler), [(0, 1, 4 + step)]);
    }
    assert_eq!(cache.step(&mut scheduler), [(1, 1, 0)]);
}

#[test]
fn static_batching_admits_when_nothing_runs() {
    let mut scheduler = Scheduler::new(Config { static_batching: true, ..Config::default() });
    let mut cache = Cache::of(100);
    scheduler.add(request(4, 2));
    assert_eq!(cache.step(&mut scheduler), [(0, 4, 0)]);
    scheduler.add(request(2, 1));
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 4)]);
    assert_eq!(cache.step(&mut scheduler), [(1, 2, 0)]);
}

/// The token budget of one step cut the batch to the few prompts that it holds.
#[test]
fn static_batching_computes_the_prompts_of_a_batch_over_several_steps() {
    let config = Config { static_batching: true, max_num_batched_tokens: 4, ..Config::default() };
    let mut scheduler = Scheduler::new(config);
    let mut cache = Cache::of(100);
    for _ in 0..3 {
        scheduler.add(request(3, 4));
    }
    assert_eq!(cache.step(&mut scheduler), [(0, 3, 0), (1, 1, 0)]);
    scheduler.add(request(1, 1));
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 3), (1, 2, 1), (2, 1, 0)]);
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 4), (1, 1, 3), (2, 2, 1)]);
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 5), (1, 1, 4), (2, 1, 3)]);
    assert_eq!(cache.step(&mut scheduler), [(1, 1, 5), (2, 1, 4)], "the batch is closed");
}

#[test]
fn static_batching_is_closed_by_want_of_room() {
    let mut scheduler = Scheduler::new(Config { static_batching: true, ..Config::default() });
    let mut cache = Cache::of(10);
    [4, 8, 1].into_iter().for_each(|prompt| {
        scheduler.add(request(prompt, 2));
    });
    assert_eq!(cache.step(&mut scheduler), [(0, 4, 0)]);
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 4)]);
    assert_eq!(cache.step(&mut scheduler), [(1, 8, 0), (2, 1, 0)]);
}

#[test]
fn a_request_that_never_fits_can_be_turned_away_and_the_next_one_runs() {
    let mut scheduler = Scheduler::new(Config::default());
    let mut cache = Cache::of(10);
    let long = scheduler.add(request(20, 1));
    scheduler.add(request(3, 1));
    assert_eq!(cache.step(&mut scheduler), []);
    assert!(scheduler.running().is_empty());
    assert!(scheduler.refuse(long));
    assert_eq!(cache.step(&mut scheduler), [(1, 3, 0)]);
    assert!(!scheduler.refuse(long), "it does not wait any more");
}

#[test]
fn a_request_ends_where_the_model_does() {
    let mut scheduler = Scheduler::new(Config { max_model_len: Some(6), ..Config::default() });
    let mut cache = Cache::of(100);
    scheduler.add(request(4, 9));
    assert_eq!(cache.step(&mut scheduler), [(0, 4, 0)]);
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 4)]);
    assert_eq!((cache.step(&mut scheduler), cache.free), (vec![], 100));
}

#[test]
fn asynchronous_scheduling_counts_on_tokens_that_are_still_computed() {
    let mut scheduler = Scheduler::new(Config::default());
    let mut cache = Cache { ahead: true, ..Cache::of(100) };
    scheduler.add(request(4, 3));
    assert_eq!(cache.step(&mut scheduler), [(0, 4, 0)]);
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 4)], "its first token is not there yet");
    let late = scheduler.add(request(2, 1));
    assert_eq!(cache.step(&mut scheduler), [(0, 1, 5), (1, 2, 0)]);
    assert_eq!(scheduler.known(late), 2);
    assert_eq!((cache.step(&mut scheduler), cache.free), (vec![], 100), "both end with that step");
    assert_eq!(scheduler.flights(), 0);
}
