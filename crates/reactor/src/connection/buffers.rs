//! A loop's buffers: lent to connections for their turns, and pooled for connections that have bytes waiting between turns.

use crate::connection::Link;
use crate::connection::input::InputBuffer;
use crate::connection::pool::Pool;
use crate::settings::ReactorSettings;

/// Connections that read before the first of them is answered, each with a lent buffer (`batch`).
pub(crate) const BATCH_MAX: usize = 8;

pub(crate) struct Buffers {
    /// Lent to connections for their turns, [`BATCH_MAX`] at most at a time; the last used goes out first (the warmest).
    inputs_lent: Vec<InputBuffer>,
    lent_bytes: usize,
    /// Without storage while lent.
    output_lent: Vec<u8>,
    output_lent_bytes_max: usize,
    input_pool: Pool,
    output_pool: Pool,
}

impl Buffers {
    pub(crate) fn new(settings: &ReactorSettings) -> Self {
        let lent_bytes = settings.traffic.read_bytes_per_turn;
        Self {
            inputs_lent: (0..BATCH_MAX).map(|_| InputBuffer::with_storage(lent_bytes)).collect(),
            lent_bytes,
            output_lent: Vec::new(),
            output_lent_bytes_max: settings.traffic.output_high_water,
            input_pool: Pool::new(settings.pool_buffers_max, settings.pool_bytes_max),
            output_pool: Pool::new(settings.pool_buffers_max, settings.pool_bytes_max),
        }
    }

    pub(crate) fn lend_input(&mut self, link: &mut Link) {
        // A batch reads no more connections than there are buffers, so one is here; a new one would do as well.
        let lent = self.inputs_lent.pop();
        link.input = lent.unwrap_or_else(|| InputBuffer::with_storage(self.lent_bytes));
        link.input_is_lent = true;
    }

    /// Gives the write queue storage: the loop's own warm buffer if it is at hand, else a spare one.
    #[inline]
    pub(crate) fn lend_output(&mut self, link: &mut Link) {
        if !link.output.has_storage() {
            let mut storage = std::mem::take(&mut self.output_lent);
            if storage.capacity() == 0 {
                storage = self.output_pool.take();
            }
            link.output.give_storage(storage);
        }
    }

    /// Takes the lent buffers back after a turn: an idle connection holds no storage. Its own empty buffers return to the pools;
    /// unconsumed input is copied out of the lent buffer.
    pub(crate) fn take_back(&mut self, link: &mut Link) {
        if link.input_is_lent {
            let own = if link.input.is_empty() {
                InputBuffer::default()
            } else {
                link.input.move_into(self.input_pool.take())
            };
            self.inputs_lent.push(std::mem::replace(&mut link.input, own));
            link.input_is_lent = false;
        } else if link.input.has_storage() && link.input.is_empty() {
            self.input_pool.give(link.input.take_storage());
        }
        if link.output.has_storage() && (link.output.is_empty() || link.is_closed()) {
            let storage = link.output.take_storage();
            if self.output_lent.capacity() == 0 && storage.capacity() <= self.output_lent_bytes_max {
                self.output_lent = storage;
            } else {
                self.output_pool.give(storage);
            }
        }
    }
}
