//! What other processes have to know of plans of insights, of which they execute parts: [`ABOVE`].

use crate::bins::Bins;
use crate::correlation::values::Wanted;
use crate::funnels::answer::Counting as FunnelSteps;
use crate::funnels::time_to_convert::Timing;
use crate::funnels::trends::Counting as FunnelRates;
use crate::interval::{Buckets, Window};
use crate::retention::answer::Counting as RetentionCells;
use crate::stickiness::answer::Counting as ActiveIntervals;
use crate::trends::active::Counting as ActivePersons;
use weir_query::events::histories::FoldReader;
use weir_query::fragments::Above;
use weir_query::functions::serializable::FunctionReader;

/// The functions with parameters, and the folds of the rows of actors.
pub const ABOVE: Above = Above {
    functions: &[
        FunctionReader::of::<Bins>(),
        FunctionReader::of::<Buckets>(),
        FunctionReader::of::<Wanted>(),
        FunctionReader::of::<Window>(),
    ],
    folds: &[
        FoldReader::of::<ActiveIntervals>(),
        FoldReader::of::<ActivePersons>(),
        FoldReader::of::<FunnelRates>(),
        FoldReader::of::<FunnelSteps>(),
        FoldReader::of::<RetentionCells>(),
        FoldReader::of::<Timing>(),
    ],
};
