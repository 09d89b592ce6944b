//! Drives a scheduler and a model engine through simulated time, as the service does, and checks each hand-off.

use std::collections::BTreeMap;
use std::time::Duration;

use sf_core::{Moment, RequestId, StepOut, StepPlan};
use sf_sched::{Admission, Outcome, QueueFull, Scheduler, SchedulerSettings};

use super::checks::{Rules, Tracked};
use super::engine::{ModelEngine, Setup};
use super::tick::Died;

/// Pause between an engine's death and the next one.
const RESTART: Duration = Duration::from_millis(50);

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A request arrives.
    Submit(Box<Admission>),
    /// Its client is gone.
    Cancel(u64),
    /// Its client is behind, or has caught up.
    Hold(u64, bool),
    /// The engine dies in its next step.
    Kill,
    /// The background divisor changes.
    Background(u32),
    /// The system runs out of memory.
    Shed,
}

/// An input of the scheduler, for replays.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Happened(Moment, Event),
    Plan(Moment),
    Apply(Moment, StepOut),
    Lost(Moment),
    Opened,
}

/// What a scheduler said to its inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) plans: Vec<Option<StepPlan>>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// A scheduler with its engine.
#[derive(Debug)]
pub(crate) struct Drive {
    pub(crate) scheduler: Scheduler,
    pub(crate) engine: ModelEngine,
    pub(crate) now: Moment,
    pub(crate) rules: Rules,
    /// Inputs and answers so far, when recorded.
    pub(crate) record: Option<(Vec<Input>, Said)>,
    events: BTreeMap<(Moment, u64), Event>,
    event_seq: u64,
    plan: StepPlan,
    out: StepOut,
    outcomes: Vec<Outcome>,
}

impl Drive {
    pub(crate) fn new(settings: SchedulerSettings, setup: Setup) -> Self {
        let mut scheduler = Scheduler::new(settings.clone());
        scheduler.engine_opened(setup.facts);
        Drive {
            scheduler,
            rules: Rules::new(settings.clone()),
            engine: ModelEngine::new(setup, settings),
            now: Moment(0),
            record: None,
            events: BTreeMap::new(),
            event_seq: 0,
            plan: StepPlan::default(),
            out: StepOut::default(),
            outcomes: Vec::new(),
        }
    }

    /// Keeps all inputs and answers from now on.
    pub(crate) fn recorded(mut self) -> Self {
        self.record = Some((vec![Input::Opened], Said::default()));
        self
    }

    /// The request, as far as it got.
    pub(crate) fn of(&self, request: u64) -> &Tracked {
        &self.rules.requests[&request]
    }

    /// Lets something happen later.
    pub(crate) fn at(&mut self, ms: u64, event: Event) {
        let at = Moment(ms * 1_000_000);
        assert!(at >= self.now, "it is {:?} already", self.now);
        self.event_seq += 1;
        self.events.insert((at, self.event_seq), event);
    }

    /// Lets a request arrive later.
    pub(crate) fn submit_at(&mut self, ms: u64, admission: Admission) {
        self.at(ms, Event::Submit(Box::new(admission)));
    }

    /// Lets a request arrive now.
    pub(crate) fn submit(&mut self, admission: Admission) {
        self.happen(self.now, Event::Submit(Box::new(admission)));
    }

    /// Lets something happen now.
    pub(crate) fn now(&mut self, event: Event) {
        self.happen(self.now, event);
    }

    fn happen(&mut self, now: Moment, mut event: Event) {
        if let Event::Submit(admission) = &mut event {
            let window = self.engine.limits.window;
            admission.stop.positions_max = admission.stop.positions_max.min(window);
        }
        self.note(Input::Happened(now, event.clone()));
        match &event {
            Event::Kill => self.engine.die = true,
            Event::Submit(admission) => {
                let taken = happen(&mut self.scheduler, now, &event);
                let hurry = admission.class.is_latency_sensitive() || self.scheduler.has_room();
                self.engine.yields |= hurry && taken.is_ok();
                self.rules.submitted(now, admission, taken.is_ok());
            }
            Event::Cancel(request) => {
                self.rules.cancelled(*request);
                let _ = happen(&mut self.scheduler, now, &event);
                self.engine.yields = true;
            }
            Event::Hold(request, held) => {
                self.rules.held(*request, *held);
                let _ = happen(&mut self.scheduler, now, &event);
            }
            Event::Background(every) => {
                self.rules.background_every(*every);
                let _ = happen(&mut self.scheduler, now, &event);
            }
            Event::Shed => drop(happen(&mut self.scheduler, now, &event)),
        }
    }

    fn happen_until(&mut self, until: Moment) {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= until) {
            let at = entry.key().0;
            let event = entry.remove();
            self.happen(at.max(self.now), event);
        }
    }

    /// One tick; `false` when there is nothing to do at this moment.
    pub(crate) fn tick(&mut self) -> bool {
        self.happen_until(self.now);
        if self.engine.die {
            self.lose();
        }
        self.note(Input::Plan(self.now));
        let mut plan = std::mem::take(&mut self.plan);
        let planned = self.scheduler.plan(self.now, &mut plan, &mut self.outcomes);
        if let Some((_, said)) = &mut self.record {
            said.plans.push(planned.then(|| plan.clone()));
        }
        self.settle();
        self.rules.planned(self.now, &self.scheduler, &self.engine);
        if planned {
            self.engine.begin(&plan);
            self.rules.ticked(&plan, &self.engine);
            let dies = self.engine.feeds_killer(&plan);
            self.plan = plan;
            if dies { self.lose() } else { self.steps() }
        } else {
            self.plan = plan;
        }
        planned
    }

    fn steps(&mut self) {
        loop {
            let end = self.now + Duration::from_nanos(self.engine.step_ns());
            self.happen_until(end);
            self.now = end;
            let mut out = std::mem::take(&mut self.out);
            let stepped = self.engine.next(&mut out);
            if let Err(Died) = stepped {
                self.out = out;
                self.lose();
                return;
            }
            self.note_apply(&out);
            self.scheduler.apply(self.now, &out, &mut self.outcomes);
            self.engine.yields |= self.scheduler.should_yield();
            self.settle();
            let last = out.last;
            self.out = out;
            if last {
                self.rules.settled(&self.scheduler, &self.engine);
                return;
            }
        }
    }

    fn lose(&mut self) {
        self.note(Input::Lost(self.now));
        self.rules.lost(&self.engine);
        self.scheduler.engine_lost(self.now, &mut self.outcomes);
        self.settle();
        let back = self.now + RESTART;
        self.happen_until(back);
        self.now = back;
        self.engine.reborn();
        self.note(Input::Opened);
        self.scheduler.engine_opened(self.engine.setup.facts);
    }

    fn settle(&mut self) {
        for outcome in self.outcomes.drain(..) {
            self.rules.told(self.now, &outcome, &self.engine);
            if let Some((_, said)) = &mut self.record {
                said.outcomes.push(outcome);
            }
        }
    }

    fn note(&mut self, input: Input) {
        if let Some((inputs, _)) = &mut self.record {
            inputs.push(input);
        }
    }

    fn note_apply(&mut self, out: &StepOut) {
        if self.record.is_some() {
            self.note(Input::Apply(self.now, out.clone()));
        }
    }

    /// Runs until no request is left and nothing is to happen any more, in at most `ticks_max` ticks.
    pub(crate) fn run(&mut self, ticks_max: u64) {
        let start = self.rules.ticks;
        loop {
            assert!(
                self.rules.ticks - start <= ticks_max,
                "not idle after {ticks_max} ticks: {}",
                self.state()
            );
            if !self.tick() && !self.skip() {
                break;
            }
        }
        let done = self.rules.living().next().is_none();
        assert!(done, "nothing is planned and not all have ended: {}", self.state());
    }

    /// Where things stand, for a failed test.
    fn state(&self) -> String {
        let living: Vec<_> = self.rules.living().map(|request| (request, self.of(request))).collect();
        let lanes: Vec<_> = self.engine.lanes.iter().map(|(lane, held)| (lane.0, held.len())).collect();
        format!("living {living:#?}, lanes {lanes:?}, {:?}, {:?}", self.scheduler.levels(), self.plan)
    }

    /// Ticks until `until` holds, in at most `ticks_max` ticks.
    pub(crate) fn run_until(&mut self, ticks_max: u64, until: impl Fn(&Drive) -> bool) {
        let start = self.rules.ticks;
        while !until(self) {
            assert!(
                self.rules.ticks - start <= ticks_max,
                "not so after {ticks_max} ticks: {}",
                self.state()
            );
            assert!(self.tick() || self.skip(), "nothing happens any more: {}", self.state());
        }
    }

    /// Goes on to the next moment at which something happens; `false` when nothing will.
    fn skip(&mut self) -> bool {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let wake = self.scheduler.next_wake().filter(|_| self.rules.living().next().is_some());
        match event.into_iter().chain(wake).min() {
            Some(next) => {
                assert!(next >= self.now, "a wake-up in the past");
                self.now = next.max(Moment(self.now.0 + 1));
                true
            }
            None => false,
        }
    }
}

/// Tells a scheduler what happened.
fn happen(scheduler: &mut Scheduler, now: Moment, event: &Event) -> Result<(), QueueFull> {
    match event {
        Event::Submit(admission) => return scheduler.submit(now, (**admission).clone()),
        Event::Cancel(request) => scheduler.cancel(RequestId(*request)),
        Event::Hold(request, held) => scheduler.hold(RequestId(*request), *held),
        Event::Background(every) => scheduler.set_background_every(*every),
        Event::Shed => scheduler.shed(),
        Event::Kill => {}
    }
    Ok(())
}

/// What a new scheduler says to recorded inputs.
pub(crate) fn replay(settings: SchedulerSettings, setup: &Setup, inputs: &[Input]) -> Said {
    let mut scheduler = Scheduler::new(settings);
    let (mut said, mut plan) = (Said::default(), StepPlan::default());
    for input in inputs {
        match input {
            Input::Happened(now, event) => drop(happen(&mut scheduler, *now, event)),
            Input::Plan(now) => {
                let planned = scheduler.plan(*now, &mut plan, &mut said.outcomes);
                said.plans.push(planned.then(|| plan.clone()));
            }
            Input::Apply(now, out) => scheduler.apply(*now, out, &mut said.outcomes),
            Input::Lost(now) => scheduler.engine_lost(*now, &mut said.outcomes),
            Input::Opened => scheduler.engine_opened(setup.facts),
        }
    }
    said
}
