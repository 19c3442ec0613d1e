//! The service: one worker that takes pages from a queue, and reacts to what it is answered.

use std::collections::VecDeque;
use std::sync::Arc;

use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::report::Answers;
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos};

use super::networks::{Networks, Running, Which, key};
use super::pages::{HEIGHT, Page};
use super::without::Without;
use crate::graph::compile::{Compiled, MARK_NAME_FIRST, Sites};
use crate::graph::lower::{CONV_SPACE, Phase};
use crate::graph::passes::PassError;
use crate::rates::Rates;

/// What is done when a page's memory is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOom {
    /// Nothing: the ops are the same whatever is answered.
    Ignore,
    /// The page is answered at once, and what it holds is freed.
    Shed,
    /// What it holds is freed, and it is read again with half as many lines together; with one line, it is shed.
    Retry,
}

/// How the service works.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How the networks are run.
    pub running: Running,
    /// Lines recognised together.
    pub group: u64,
    /// Groups are filled up to that.
    pub filled: bool,
    /// Most pages that wait; more are turned away. 0: no limit.
    pub queue: u64,
    /// When memory is refused.
    pub on_oom: OnOom,
    /// The largest page, which is read before the first comes.
    pub warm: Option<Page>,
}

/// The page at hand.
struct Serving {
    /// None while warming up.
    request: Option<u64>,
    page: Page,
    group: u64,
}

enum Piece {
    Mark(String),
    Run(Which, Phase, u64),
    /// Both models are there.
    Loaded,
    Free(BufferId),
    Done,
}

/// What is known of a buffer's slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// It was asked for and not freed since. That holds for one that was refused, too: its number is taken until it is freed.
    taken: bool,
    name: u64,
}

/// The service as a source.
pub struct Service {
    settings: Settings,
    networks: Networks,
    sites: Sites,
    /// When pages come, and which; none any more at the end.
    coming: Box<dyn Iterator<Item = (Nanos, Page)> + Send>,
    next: Option<(Nanos, Page)>,
    loaded: bool,
    /// The host slept until the next page came.
    waited: bool,
    queue: VecDeque<(u64, Page)>,
    serving: Option<Serving>,
    todo: VecDeque<Piece>,
    ops: Arc<Compiled>,
    at: usize,
    uses: (u32, u32),
    /// The last op asked for a buffer; can the program do without?
    asked: Option<bool>,
    /// Workspaces that are done without.
    without: Without,
    slots: Vec<Slot>,
    allocs: u64,
    mark: (NameId, String),
    marks: u32,
    counts: Answers,
    over: bool,
}

impl Service {
    /// It reads these pages, each of which comes at its time.
    ///
    /// # Errors
    /// When the networks cannot be run so.
    pub fn new(
        settings: Settings,
        mut coming: Box<dyn Iterator<Item = (Nanos, Page)> + Send>,
        rates: Rates,
    ) -> Result<Self, PassError> {
        let networks = Networks::new(&settings.running, rates)?;
        let next = coming.next();
        let mut todo = VecDeque::from([Piece::Mark("models to device".to_owned())]);
        for which in [Which::Detector, Which::Recogniser] {
            todo.push_back(Piece::Run(which, Phase::Load, key([32, 32])));
        }
        todo.push_back(Piece::Loaded);
        let serving = settings.warm.clone().map(|page| Serving {
            request: None,
            page,
            group: settings.group,
        });
        let mut service = Self {
            settings,
            networks,
            sites: Sites::new(),
            coming,
            next,
            loaded: false,
            waited: false,
            queue: VecDeque::new(),
            serving,
            todo,
            ops: Arc::default(),
            at: 0,
            uses: (0, 0),
            asked: None,
            without: Without::default(),
            slots: Vec::new(),
            allocs: 0,
            mark: (NameId(0), String::new()),
            marks: 0,
            counts: Answers::default(),
            over: false,
        };
        service.plan_page();
        Ok(service)
    }

    /// What the page at hand needs.
    fn plan_page(&mut self) {
        let Some(Serving { request, page, group }) = &self.serving else {
            self.todo.push_back(Piece::Done);
            return;
        };
        let name = request.map_or("warm".to_owned(), |request| format!("request {request}"));
        let [height, width] = page.size;
        self.todo.push_back(Piece::Mark(format!("{name} detect {height}x{width}")));
        let phase = Phase::Batch(0);
        self.todo.push_back(Piece::Run(Which::Detector, phase, key(page.size)));
        self.todo.push_back(Piece::Mark(format!("{name} recognise {}", page.lines.len())));
        for lines in page.lines.chunks(*group as usize) {
            let widest = lines.iter().copied().max().unwrap_or(HEIGHT);
            let count = if self.settings.filled { *group } else { lines.len() as u64 };
            self.todo.push_back(Piece::Run(Which::Recogniser, phase, key([count, widest])));
        }
        self.todo.push_back(Piece::Done);
    }

    /// A page has come; the op that says so, unless it is turned away.
    fn arrive(&mut self) -> Option<Op> {
        let (_, page) = self.next.take()?;
        self.next = self.coming.next();
        self.waited = false;
        self.counts.requests += 1;
        if self.settings.queue > 0 && self.queue.len() as u64 >= self.settings.queue {
            self.counts.turned_away += 1;
            return None;
        }
        let req = self.counts.requests - self.counts.turned_away - 1;
        self.queue.push_back((req, page));
        Some(Op::Request { req })
    }

    /// Memory was refused: what is held beside the models is freed, and the page is tried again or shed. Where it was the models', nobody is served.
    fn give_up(&mut self) {
        self.ops = Arc::default();
        self.at = 0;
        self.todo.clear();
        for (id, slot) in self.slots.iter().enumerate() {
            if slot.taken && !(self.loaded && self.networks.is_weight(id as u32)) {
                self.todo.push_back(Piece::Free(BufferId(id as u32)));
            }
        }
        if !self.loaded {
            self.close();
            return;
        }
        let Some(serving) = &mut self.serving else { return };
        self.networks.forget();
        if self.settings.on_oom == OnOom::Retry && serving.group > 1 {
            serving.group /= 2;
            self.counts.retries += 1;
            self.plan_page();
        } else {
            // a page to warm up with is nobody's
            self.counts.shed += u64::from(serving.request.is_some());
            self.todo.push_back(Piece::Done);
        }
    }

    /// There is no room for the models: every page is turned away.
    fn close(&mut self) {
        self.serving = None;
        while self.next.take().is_some() {
            self.counts.requests += 1;
            self.counts.turned_away += 1;
            self.next = self.coming.next();
        }
    }

    /// The next op of the program at hand.
    fn program_op(&mut self) -> Option<Op> {
        loop {
            let (op, uses_end) = *self.ops.ops.get(self.at)?;
            self.uses = (if self.at == 0 { 0 } else { self.uses.1 }, uses_end);
            self.at += 1;
            match op {
                // the service has marks of its own
                Op::Mark { .. } => {}
                Op::Alloc { id, site, .. } => {
                    let optional = self.sites.text(site).ends_with(CONV_SPACE);
                    if optional && self.without.skips(self.at, id) {
                        continue;
                    }
                    let place = id.0 as usize;
                    if place >= self.slots.len() {
                        self.slots.resize(place + 1, Slot::default());
                    }
                    self.slots[place] = Slot { taken: true, name: self.allocs };
                    self.allocs += 1;
                    self.asked = Some(optional);
                    return Some(op);
                }
                Op::Free { id, .. } if self.without.freed(id) => {}
                Op::Work { .. } => {
                    let uses = &self.ops.uses[self.uses.0 as usize..self.uses.1 as usize];
                    self.without.filter(uses);
                    return Some(op);
                }
                Op::Free { id, .. } => {
                    self.slots[id.0 as usize].taken = false;
                    return Some(op);
                }
                _ => return Some(op),
            }
        }
    }

    /// Begins the next piece; its op, if it is one.
    fn piece(&mut self, piece: Piece) -> Result<Option<Op>, SourceError> {
        match piece {
            Piece::Mark(text) => {
                let name = NameId(MARK_NAME_FIRST + self.marks % MARK_NAME_FIRST);
                self.marks = self.marks.wrapping_add(1);
                self.mark = (name, text);
                Ok(Some(Op::Mark { name }))
            }
            Piece::Run(which, phase, key) => {
                let programs = self.networks.get(which);
                if phase != Phase::Load {
                    programs.choose(key).map_err(|error| SourceError {
                        place: self.mark.1.clone(),
                        what: error.to_string(),
                    })?;
                }
                self.ops = programs.phase(&mut self.sites, phase);
                self.at = 0;
                self.without.begin(which, key);
                Ok(None)
            }
            Piece::Loaded => {
                self.loaded = true;
                Ok(None)
            }
            Piece::Free(id) => {
                self.slots[id.0 as usize].taken = false;
                Ok(Some(Op::Free { id, stream: None }))
            }
            Piece::Done => {
                let request = self.serving.take().and_then(|serving| serving.request);
                self.counts.answered += u64::from(request.is_some());
                Ok(request.map(|req| Op::Response { req }))
            }
        }
    }

    /// Was the last op's memory refused, so that the page cannot go on?
    fn is_stuck(&mut self, last: Answered) -> bool {
        let Some(optional) = self.asked.take() else { return false };
        let refused = matches!(last, Answered::OutOfMemory | Answered::InvalidSize);
        if !refused || self.settings.on_oom == OnOom::Ignore {
            return false;
        }
        if optional {
            self.without.refused(self.at);
        }
        !optional
    }

    fn summary(&self) -> String {
        let Answers { answered, turned_away, shed, retries, .. } = self.counts;
        format!(
            "end: {answered} answered, {shed} of them shed, {retries} retries, {turned_away} turned away"
        )
    }

    /// Are the models loaded, and is the first page read if there is one to warm up with?
    fn is_ready(&self) -> bool {
        let warming = self.serving.as_ref().is_some_and(|serving| serving.request.is_none());
        self.loaded && !warming
    }
}

impl Source for Service {
    fn next(&mut self, now: Nanos, last: Answered) -> Result<Step, SourceError> {
        if self.is_stuck(last) {
            self.give_up();
        }
        loop {
            let due = self.next.as_ref().is_some_and(|(at, _)| *at <= now || self.waited);
            if due && self.is_ready() {
                if let Some(op) = self.arrive() {
                    return Ok(Step::Op(op));
                }
                continue;
            }
            if let Some(op) = self.program_op() {
                return Ok(Step::Op(op));
            }
            if let Some(piece) = self.todo.pop_front() {
                if let Some(op) = self.piece(piece)? {
                    return Ok(Step::Op(op));
                }
                continue;
            }
            if let Some((request, page)) = self.queue.pop_front() {
                let (request, group) = (Some(request), self.settings.group);
                self.serving = Some(Serving { request, page, group });
                self.plan_page();
            } else if let Some((at, _)) = &self.next {
                self.waited = true;
                return Ok(Step::WaitUntil(*at));
            } else if !self.over {
                self.over = true;
                self.todo.push_back(Piece::Mark(self.summary()));
            } else {
                return Ok(Step::End);
            }
        }
    }

    fn uses(&self) -> &[BufferUse] {
        let all = &self.ops.uses[self.uses.0 as usize..self.uses.1 as usize];
        self.without.uses().unwrap_or(all)
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, name: NameId) -> &str {
        if name == self.mark.0 { &self.mark.1 } else { self.sites.text(name) }
    }

    fn name(&self, id: BufferId) -> u64 {
        self.slots.get(id.0 as usize).map_or(0, |slot| slot.name)
    }

    fn answers(&self) -> Option<Answers> {
        Some(self.counts)
    }

    fn independent(&self) -> bool {
        self.settings.on_oom == OnOom::Ignore && self.settings.queue == 0
    }

    fn gaps(&self) -> u64 {
        0
    }
}
