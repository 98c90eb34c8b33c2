//! Nodes around a query, with its display options.

use crate::node;
use crate::node::AnyNode;
use crate::nodes::base::Common;
use crate::nodes::reasons::SHOWN;

node! {
    /// What says how a question is shown; all besides the question.
    Wrapper "InsightVizNode" | "DataTableNode" | "DataVisualizationNode": Common {
        /// The question
        source: Option<AnyNode>,
    }
    ignored SHOWN [
        "allowSorting",
        "chartSettings",
        "columns",
        "context",
        "contextKey",
        "defaultColumns",
        "display",
        "embedded",
        "expandable",
        "full",
        "hiddenColumns",
        "hidePersonsModal",
        "hideTooltipOnScroll",
        "pinnedColumns",
        "propertiesViaUrl",
        "showAbsoluteTime",
        "showActions",
        "showColumnConfigurator",
        "showCorrelationTable",
        "showCount",
        "showDateRange",
        "showElapsedTime",
        "showEventFilter",
        "showEventsFilter",
        "showExport",
        "showFilters",
        "showHeader",
        "showHogQLEditor",
        "showLastComputation",
        "showLastComputationRefresh",
        "showOpenEditorButton",
        "showPersistentColumnConfigurator",
        "showPropertyFilter",
        "showRecordingColumn",
        "showReload",
        "showResults",
        "showResultsTable",
        "showSavedFilters",
        "showSavedQueries",
        "showSearch",
        "showSourceQueryOptions",
        "showTable",
        "showTableViews",
        "showTestAccountFilters",
        "showTimings",
        "suppressSessionAnalysisWarning",
        "tableSettings",
        "vizSpecificOptions",
    ];
}
