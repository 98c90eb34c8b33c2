//! The two schemas of the catalog, whose tables are made when a statement names them: [`PgCatalog`], [`Information`].

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result;

use crate::catalog::table::table;
use crate::catalog::{Catalog, information};

/// The tables of `pg_catalog` that have rows.
const LIVE: [&str; 19] = [
    "pg_am",
    "pg_attribute",
    "pg_authid",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_database",
    "pg_description",
    "pg_get_keywords",
    "pg_index",
    "pg_indexes",
    "pg_namespace",
    "pg_roles",
    "pg_settings",
    "pg_stat_all_tables",
    "pg_stat_user_tables",
    "pg_tables",
    "pg_type",
    "pg_user",
];

/// The tables of `pg_catalog` that have none, with those of their columns that clients name.
const EMPTY: [(&str, &str); 50] = [
    ("pg_aggregate", "aggfnoid:l aggkind:t aggnumdirectargs:s aggtransfn:t aggfinalfn:t"),
    (
        "pg_amop",
        "oid:l amopfamily:l amoplefttype:l amoprighttype:l amopstrategy:s amopopr:l amopmethod:l",
    ),
    ("pg_amproc", "oid:l amprocfamily:l amproclefttype:l amprocrighttype:l amprocnum:s amproc:t"),
    ("pg_attrdef", "oid:l adrelid:l adnum:s adbin:t adsrc:t"),
    ("pg_auth_members", "oid:l roleid:l member:l grantor:l admin_option:b"),
    ("pg_available_extensions", "name:t default_version:t installed_version:t comment:t"),
    ("pg_cast", "oid:l castsource:l casttarget:l castfunc:l castcontext:t castmethod:t"),
    (
        "pg_conversion",
        "oid:l conname:t connamespace:l conowner:l conforencoding:i contoencoding:i conproc:t condefault:b",
    ),
    ("pg_cursors", "name:t statement:t is_holdable:b is_binary:b is_scrollable:b creation_time:t"),
    ("pg_db_role_setting", "setdatabase:l setrole:l setconfig:T"),
    ("pg_default_acl", "oid:l defaclrole:l defaclnamespace:l defaclobjtype:t defaclacl:T"),
    ("pg_depend", "classid:l objid:l objsubid:i refclassid:l refobjid:l refobjsubid:i deptype:t"),
    ("pg_enum", "oid:l enumtypid:l enumsortorder:f enumlabel:t"),
    ("pg_event_trigger", "oid:l evtname:t evtevent:t evtowner:l evtfoid:l evtenabled:t evttags:T"),
    (
        "pg_extension",
        "oid:l extname:t extowner:l extnamespace:l extrelocatable:b extversion:t extconfig:L extcondition:T",
    ),
    (
        "pg_foreign_data_wrapper",
        "oid:l fdwname:t fdwowner:l fdwhandler:l fdwvalidator:l fdwacl:T fdwoptions:T",
    ),
    (
        "pg_foreign_server",
        "oid:l srvname:t srvowner:l srvfdw:l srvtype:t srvversion:t srvacl:T srvoptions:T",
    ),
    ("pg_foreign_table", "ftrelid:l ftserver:l ftoptions:T"),
    ("pg_inherits", "inhrelid:l inhparent:l inhseqno:i inhdetachpending:b"),
    (
        "pg_language",
        "oid:l lanname:t lanowner:l lanispl:b lanpltrusted:b lanplcallfoid:l laninline:l lanvalidator:l lanacl:T",
    ),
    ("pg_largeobject_metadata", "oid:l lomowner:l lomacl:T"),
    (
        "pg_locks",
        "locktype:t database:l relation:l page:i tuple:s transactionid:l classid:l objid:l pid:i mode:t granted:b",
    ),
    (
        "pg_matviews",
        "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t",
    ),
    (
        "pg_opclass",
        "oid:l opcmethod:l opcname:t opcnamespace:l opcowner:l opcfamily:l opcintype:l opcdefault:b opckeytype:l",
    ),
    (
        "pg_operator",
        "oid:l oprname:t oprnamespace:l oprowner:l oprkind:t oprleft:l oprright:l oprresult:l oprcode:t",
    ),
    ("pg_opfamily", "oid:l opfmethod:l opfname:t opfnamespace:l opfowner:l"),
    (
        "pg_partitioned_table",
        "partrelid:l partstrat:t partnatts:s partdefid:l partattrs:S partclass:L partexprs:t",
    ),
    (
        "pg_policies",
        "schemaname:t tablename:t policyname:t permissive:t roles:T cmd:t qual:t with_check:t",
    ),
    (
        "pg_policy",
        "oid:l polname:t polrelid:l polcmd:t polpermissive:b polroles:L polqual:t polwithcheck:t",
    ),
    ("pg_prepared_statements", "name:t statement:t prepare_time:t parameter_types:T from_sql:b"),
    (
        "pg_proc",
        "oid:l proname:t pronamespace:l proowner:l prolang:l procost:f prorows:f provariadic:l prokind:t prosecdef:b \
         proleakproof:b proisstrict:b proretset:b provolatile:t proparallel:t pronargs:s pronargdefaults:s prorettype:l \
         proargtypes:L proallargtypes:L proargmodes:T proargnames:T proargdefaults:t protrftypes:L prosrc:t probin:t \
         prosqlbody:t proconfig:T proacl:T proisagg:b proiswindow:b",
    ),
    (
        "pg_publication",
        "oid:l pubname:t pubowner:l puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b",
    ),
    ("pg_publication_namespace", "oid:l pnpubid:l pnnspid:l"),
    ("pg_publication_rel", "oid:l prpubid:l prrelid:l prqual:t prattrs:S"),
    (
        "pg_range",
        "rngtypid:l rngsubtype:l rngmultitypid:l rngcollation:l rngsubopc:l rngcanonical:t rngsubdiff:t",
    ),
    (
        "pg_replication_slots",
        "slot_name:t plugin:t slot_type:t datoid:l database:t temporary:b active:b active_pid:i",
    ),
    (
        "pg_rewrite",
        "oid:l rulename:t ev_class:l ev_type:t ev_enabled:t is_instead:b ev_qual:t ev_action:t",
    ),
    ("pg_rules", "schemaname:t tablename:t rulename:t definition:t"),
    ("pg_seclabel", "objoid:l classoid:l objsubid:i provider:t label:t"),
    (
        "pg_sequence",
        "seqrelid:l seqtypid:l seqstart:l seqincrement:l seqmax:l seqmin:l seqcache:l seqcycle:b",
    ),
    (
        "pg_sequences",
        "schemaname:t sequencename:t sequenceowner:t data_type:t start_value:l min_value:l max_value:l last_value:l",
    ),
    ("pg_shdescription", "objoid:l classoid:l description:t"),
    (
        "pg_stat_activity",
        "datid:l datname:t pid:i usesysid:l usename:t application_name:t client_addr:t state:t query:t",
    ),
    ("pg_stat_gssapi", "pid:i gss_authenticated:b principal:t encrypted:b credentials_delegated:b"),
    (
        "pg_statistic_ext",
        "oid:l stxrelid:l stxname:t stxnamespace:l stxowner:l stxstattarget:i stxkeys:S stxkind:T stxexprs:t",
    ),
    (
        "pg_subscription",
        "oid:l subdbid:l subname:t subowner:l subenabled:b subconninfo:t subslotname:t subpublications:T",
    ),
    ("pg_tablespace", "oid:l spcname:t spcowner:l spcacl:T spcoptions:T"),
    (
        "pg_trigger",
        "oid:l tgrelid:l tgparentid:l tgname:t tgfoid:l tgtype:s tgenabled:t tgisinternal:b tgconstrrelid:l \
         tgconstrindid:l tgconstraint:l tgdeferrable:b tginitdeferred:b tgnargs:s tgattr:S tgargs:t tgqual:t",
    ),
    ("pg_ts_config", "oid:l cfgname:t cfgnamespace:l cfgowner:l cfgparser:l"),
    ("pg_views", "schemaname:t viewname:t viewowner:t definition:t"),
];

/// Whether a table of the catalog never has rows.
pub(super) fn is_empty(name: &str) -> bool {
    EMPTY.iter().any(|(own, _)| *own == name)
}

/// `pg_catalog`
#[derive(Debug)]
pub(super) struct PgCatalog(pub(super) Arc<Catalog>);

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        let empty = EMPTY.iter().map(|(name, _)| *name);
        LIVE.into_iter().chain(empty).map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let found = EMPTY.iter().find(|(own, _)| *own == name);
        match found {
            Some((_, columns)) => table(columns, &[]).map(Some),
            None => self.0.live(name).transpose(),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        is_empty(name) || LIVE.contains(&name)
    }
}

/// `information_schema`
#[derive(Debug)]
pub(super) struct Information(pub(super) Arc<Catalog>);

#[async_trait]
impl SchemaProvider for Information {
    fn table_names(&self) -> Vec<String> {
        information::TABLES.map(str::to_owned).to_vec()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.0.information(name).transpose()
    }

    fn table_exist(&self, name: &str) -> bool {
        information::TABLES.contains(&name)
    }
}
