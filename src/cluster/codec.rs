//! Writes and reads plans: [`encode`], and [`Codec`] for what reads them. DataFusion's own operators and functions are
//! written by DataFusion, those of the distributed engine by the engine, and ours by their contents.
//!
//! The engine has a list of codecs, its own first. In version 4 that one accepts every function and writes nothing of it,
//! so that the function is looked up by its name where the plan is read. Plans are therefore written here, with a list in
//! which a function with a content is refused by the first codec; the engine reads them.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::DistributedCodec;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_proto_converter, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::physical_plan::{
    ComposedPhysicalExtensionCodec, DeduplicatingProtoConverter, PhysicalExtensionCodec,
    PhysicalProtoConverterExtension,
};

use weir_query::fragments::Fragments;

/// Longest plan of a task. It is sent to each of them.
const PLAN_BYTES_MAX: usize = 16 << 20;

/// Reads and writes our operators and functions.
#[derive(Clone, Debug)]
pub(crate) struct Codec(pub(crate) Fragments);

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        content: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.read_operator(content, inputs)
    }

    fn try_encode(
        &self,
        operator: Arc<dyn ExecutionPlan>,
        content: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        content.extend(self.0.write_operator(&operator)?);
        Ok(())
    }

    fn try_decode_udf(&self, _: &str, content: &[u8]) -> Result<Arc<ScalarUDF>> {
        self.0.read_function(content).map(Arc::new)
    }

    fn try_encode_udf(&self, function: &ScalarUDF, content: &mut Vec<u8>) -> Result<()> {
        content.extend(self.0.write_function(function)?.unwrap_or_default());
        Ok(())
    }
}

/// Refuses everything, in the place of the engine's codec.
#[derive(Debug)]
struct Refusing;

impl PhysicalExtensionCodec for Refusing {
    fn try_decode(
        &self,
        _: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(unknown("an operator"))
    }

    fn try_encode(
        &self,
        operator: Arc<dyn ExecutionPlan>,
        _: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        Err(unknown(operator.name()))
    }

    fn try_encode_udf(&self, function: &ScalarUDF, _: &mut Vec<u8>) -> Result<()> {
        Err(unknown(function.name()))
    }
}

/// Writes for the engine's list of codecs, in which [`Codec`] is the second.
#[derive(Debug)]
struct Writer {
    fragments: Fragments,
    operators: ComposedPhysicalExtensionCodec,
    functions: ComposedPhysicalExtensionCodec,
}

impl Writer {
    fn new(fragments: &Fragments) -> Self {
        let own = Arc::new(Codec(fragments.clone()));
        let with = |first: Arc<dyn PhysicalExtensionCodec>| {
            ComposedPhysicalExtensionCodec::new(vec![first, Arc::clone(&own) as _])
        };
        Self {
            fragments: fragments.clone(),
            operators: with(Arc::new(DistributedCodec)),
            functions: with(Arc::new(Refusing)),
        }
    }
}

impl PhysicalExtensionCodec for Writer {
    fn try_decode(
        &self,
        content: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.operators.try_decode(content, inputs, context, converter)
    }

    fn try_encode(
        &self,
        operator: Arc<dyn ExecutionPlan>,
        content: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        self.operators.try_encode(operator, content, converter)
    }

    fn try_decode_udf(&self, name: &str, content: &[u8]) -> Result<Arc<ScalarUDF>> {
        self.operators.try_decode_udf(name, content)
    }

    fn try_encode_udf(&self, function: &ScalarUDF, content: &mut Vec<u8>) -> Result<()> {
        match self.fragments.write_function(function)? {
            // It is looked up by its name.
            None => Ok(()),
            Some(_) => self.functions.try_encode_udf(function, content),
        }
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, _: &mut Vec<u8>) -> Result<()> {
        match self.fragments.has_aggregate(function) {
            true => Ok(()),
            false => Err(unknown(function.name())),
        }
    }

    fn try_encode_higher_order_function(
        &self,
        function: &HigherOrderUDF,
        _: &mut Vec<u8>,
    ) -> Result<()> {
        match self.fragments.has_function_of_lambdas(function) {
            true => Ok(()),
            false => Err(unknown(function.name())),
        }
    }
}

fn unknown(name: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!("{name} cannot be executed by another process"))
}

/// A plan as the engine of another process reads it.
///
/// # Errors
///
/// It has a part that only this process can execute.
pub(crate) fn encode(plan: Arc<dyn ExecutionPlan>, fragments: &Fragments) -> Result<Vec<u8>> {
    let (writer, converter) = (Writer::new(fragments), DeduplicatingProtoConverter::default());
    let bytes = physical_plan_to_bytes_with_proto_converter(plan, &writer, &converter)?;
    match bytes.len() {
        0..=PLAN_BYTES_MAX => Ok(bytes.to_vec()),
        length => {
            Err(DataFusionError::NotImplemented(format!("a plan of {length} bytes is not sent")))
        }
    }
}

/// Checks that a plan can be executed by another process: it is written, and read again as that one would read it.
///
/// # Errors
///
/// It has a part that only this process can execute, or is too deep to be read.
pub(crate) fn check(
    plan: Arc<dyn ExecutionPlan>,
    fragments: &Fragments,
    context: &TaskContext,
) -> Result<()> {
    let bytes = encode(plan, fragments)?;
    let (writer, converter) = (Writer::new(fragments), DeduplicatingProtoConverter::default());
    physical_plan_from_bytes_with_proto_converter(&bytes, context, &writer, &converter)?;
    Ok(())
}
