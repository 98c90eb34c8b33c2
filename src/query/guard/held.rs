//! Ties a memory reservation to the lifetime of an array's buffers: [`hold`].

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, make_array};
use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;

/// Minimum bytes of a buffer that is held: smaller ones do not matter, and are many.
const HELD_BYTES_MIN: usize = 4096;

/// A buffer and its reservation, which ends with the last reference to the buffer.
struct Held {
    buffer: Buffer,
    _reservation: Arc<MemoryReservation>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// The same array, with buffers that keep `reservation` until the last of them is dropped. Nothing is copied.
///
/// # Errors
///
/// The array is not valid: a bug of the code that made it.
pub(super) fn hold(
    array: &ArrayRef,
    reservation: MemoryReservation,
) -> Result<ArrayRef, ArrowError> {
    let held = held(array.to_data(), &Arc::new(reservation))?;
    Ok(make_array(held))
}

fn held(data: ArrayData, reservation: &Arc<MemoryReservation>) -> Result<ArrayData, ArrowError> {
    let buffers = data.buffers().iter().map(|buffer| {
        if buffer.len() < HELD_BYTES_MIN {
            return buffer.clone();
        }
        let _reservation = Arc::clone(reservation);
        Buffer::from(Bytes::from_owner(Held { buffer: buffer.clone(), _reservation }))
    });
    let buffers: Vec<Buffer> = buffers.collect();
    let children = data.child_data().iter().map(|child| held(child.clone(), reservation));
    let children = children.collect::<Result<Vec<_>, _>>()?;
    data.into_builder().buffers(buffers).child_data(children).build()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    use super::hold;

    #[test]
    fn memory_is_reserved_until_the_last_slice_is_dropped() {
        let long = "x".repeat(10_000);
        let list = [Some((0..10_000).map(Some).collect::<Vec<_>>())];
        let arrays: [ArrayRef; 3] = [
            Arc::new(StringArray::from(vec![long.as_str(), "b"])),
            Arc::new(StringViewArray::from(vec![long.as_str(), "b"])),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(list)),
        ];
        for array in arrays {
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
            let reservation = MemoryConsumer::new("test").register(&pool);
            reservation.try_grow(12_345).unwrap();
            let held = hold(&array, reservation).unwrap();
            assert_eq!(&held, &array);
            let slice = held.slice(0, 1);
            drop(held);
            assert_eq!(pool.reserved(), 12_345, "{:?}", array.data_type());
            drop(slice);
            assert_eq!(pool.reserved(), 0, "{:?}", array.data_type());
        }
    }
}
