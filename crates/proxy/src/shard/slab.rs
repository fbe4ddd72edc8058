//! A slab: values in numbered places. The key of a removed value finds nothing, although another value may have taken
//! its place.

/// Identifies a value of one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// A key that finds nothing.
    pub(crate) const NONE: Key = Key { index: u32::MAX, generation: 0 };
}

struct Place<T> {
    generation: u32,
    is_taken: bool,
    /// Empty while the value is lent.
    value: Option<Box<T>>,
}

/// See the module.
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    count: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new(), count: 0 }
    }

    /// Number of values, including lent ones.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds a value; `make` receives its key.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, is_taken: false, value: None });
            // Each value is a connection: descriptors run out before the numbers do.
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
        let key = Key { index, generation: place.generation };
        (place.is_taken, place.value) = (true, Some(Box::new(make(key))));
        self.count += 1;
        key
    }

    #[inline]
    fn place(&mut self, key: Key) -> Option<&mut Place<T>> {
        let place = self.places.get_mut(key.index as usize)?;
        (place.is_taken && place.generation == key.generation).then_some(place)
    }

    /// The value; none if it was removed or is lent.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.place(key)?.value.as_deref_mut()
    }

    /// Takes the value out temporarily, so that the other values can be accessed.
    #[inline]
    pub(crate) fn lend(&mut self, key: Key) -> Option<Box<T>> {
        self.place(key)?.value.take()
    }

    /// Returns a lent value.
    #[inline]
    pub(crate) fn take_back(&mut self, key: Key, value: Box<T>) {
        if let Some(place) = self.place(key) {
            place.value = Some(value);
        }
    }

    /// Removes the value.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<T>> {
        let place = self.place(key)?;
        place.is_taken = false;
        let value = place.value.take();
        self.free.push(key.index);
        self.count -= 1;
        value
    }

    /// All values that are not lent.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| place.value.as_deref_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn a_stale_key_finds_nothing_in_a_place_that_is_used_again() {
        let mut slab = Slab::new();
        let first = slab.insert(|_| 'a');
        assert_eq!(slab.remove(first).as_deref(), Some(&'a'));
        let second = slab.insert(|_| 'b');
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.get_mut(second).copied(), Some('b'));
        let lent = slab.lend(second).unwrap();
        assert!(slab.get_mut(second).is_none() && slab.len() == 1);
        slab.take_back(second, lent);
        assert_eq!(slab.iter_mut().count(), 1);
    }
}
