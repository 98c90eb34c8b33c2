//! Writes and reads plans: [`Writer`], and [`Codec`] for the engine, which reads them. DataFusion's own operators and
//! functions are written by DataFusion, those of the distributed engine by the engine, and ours by their contents.
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

use weir_query::fragments::{Fragments, unwritable};

/// Longest plan of a task. It is sent to each of them.
const PLAN_BYTES_MAX: usize = 16 << 20;

/// Reads our operators and functions, and writes our operators.
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
}

/// Gives the content of one function, or refuses it in the place of the engine's codec.
#[derive(Debug)]
struct Content(Option<Vec<u8>>);

impl PhysicalExtensionCodec for Content {
    fn try_decode(
        &self,
        _: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(unwritable("an operator"))
    }

    fn try_encode(
        &self,
        operator: Arc<dyn ExecutionPlan>,
        _: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        Err(unwritable(operator.name()))
    }

    fn try_encode_udf(&self, function: &ScalarUDF, content: &mut Vec<u8>) -> Result<()> {
        content.extend(self.0.as_ref().ok_or_else(|| unwritable(function.name()))?);
        Ok(())
    }
}

/// Writes the plans of a query for the engine's list of codecs, in which [`Codec`] is the second.
#[derive(Debug)]
pub(crate) struct Writer {
    fragments: Fragments,
    codecs: ComposedPhysicalExtensionCodec,
}

impl PhysicalExtensionCodec for Writer {
    fn try_decode(
        &self,
        content: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.codecs.try_decode(content, inputs, context, converter)
    }

    fn try_encode(
        &self,
        operator: Arc<dyn ExecutionPlan>,
        content: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        self.codecs.try_encode(operator, content, converter)
    }

    fn try_decode_udf(&self, name: &str, content: &[u8]) -> Result<Arc<ScalarUDF>> {
        self.codecs.try_decode_udf(name, content)
    }

    fn try_encode_udf(&self, function: &ScalarUDF, content: &mut Vec<u8>) -> Result<()> {
        // It is looked up by its name.
        let Some(own) = self.fragments.write_function(function)? else { return Ok(()) };
        let codecs = ComposedPhysicalExtensionCodec::new(vec![
            Arc::new(Content(None)),
            Arc::new(Content(Some(own))),
        ]);
        codecs.try_encode_udf(function, content)
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, _: &mut Vec<u8>) -> Result<()> {
        self.fragments.check_aggregate(function)
    }

    fn try_encode_higher_order_function(
        &self,
        function: &HigherOrderUDF,
        _: &mut Vec<u8>,
    ) -> Result<()> {
        self.fragments.check_function_of_lambdas(function)
    }
}

impl Writer {
    pub(crate) fn new(fragments: Fragments) -> Self {
        let codecs = ComposedPhysicalExtensionCodec::new(vec![
            Arc::new(DistributedCodec),
            Arc::new(Codec(fragments.clone())),
        ]);
        Self { fragments, codecs }
    }

    /// A plan as the engine of another process reads it.
    ///
    /// # Errors
    ///
    /// It has a part that only this process can execute.
    pub(crate) fn encode(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        let converter = DeduplicatingProtoConverter::default();
        let bytes = physical_plan_to_bytes_with_proto_converter(plan, self, &converter)?;
        match bytes.len() {
            0..=PLAN_BYTES_MAX => Ok(bytes.to_vec()),
            length => Err(DataFusionError::NotImplemented(format!(
                "a plan of {length} bytes is not sent"
            ))),
        }
    }

    /// Checks that a plan can be executed by another process: it is written, and read again as that one would read it.
    ///
    /// # Errors
    ///
    /// It has a part that only this process can execute, or is too deep to be read.
    pub(crate) fn check(&self, plan: Arc<dyn ExecutionPlan>, context: &TaskContext) -> Result<()> {
        let bytes = self.encode(plan)?;
        let converter = DeduplicatingProtoConverter::default();
        physical_plan_from_bytes_with_proto_converter(&bytes, context, self, &converter)?;
        Ok(())
    }
}
