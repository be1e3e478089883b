//! The switch that all devices hang on.
//!
//! What always holds: once it is off every device refuses everything, at once and together, until it is on again; steps
//! are counted over all devices and all clients, so one number names a moment of a life.

use holdfast_objstore_base::sim::SimDisk;
use holdfast_objstore_base::told::Told;
use parking_lot::Mutex;

pub struct Power {
    state: Mutex<State>,
    off: Told<bool>,
}

#[derive(Default)]
struct State {
    steps: u64,
    cut_at: Option<u64>,
    disks: Vec<SimDisk>,
}

impl Default for Power {
    fn default() -> Self {
        Self { state: Mutex::default(), off: Told::new(true) }
    }
}

impl Power {
    /// On again, for these disks. Nothing cuts it until [`Power::cut_after`].
    pub fn on(&self, disks: Vec<SimDisk>) {
        *self.state.lock() = State { disks, ..State::default() };
        self.off.tell(|off| *off = false);
    }

    /// It goes after `steps` more.
    pub fn cut_after(&self, steps: u64) {
        let mut s = self.state.lock();
        s.cut_at = Some(s.steps + steps);
    }

    /// Counts one step.
    pub fn step(&self) {
        let due = {
            let mut s = self.state.lock();
            s.steps += 1;
            s.cut_at.is_some_and(|at| s.steps > at)
        };
        if due {
            self.cut();
        }
    }

    /// It goes now.
    pub fn cut(&self) {
        let disks = std::mem::take(&mut self.state.lock().disks);
        disks.iter().for_each(SimDisk::cut_now);
        self.off.tell(|off| *off = true);
    }

    pub fn is_off(&self) -> bool {
        self.off.get()
    }

    /// Waits until it goes.
    pub async fn gone(&self) {
        self.off.until(|off| off.then_some(())).await
    }

    /// Steps since it is on.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }
}
