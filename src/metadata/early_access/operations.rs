//! Operations on early access features, and their effect on flags.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::accounts::check_text;
use crate::early_access::{
    EarlyAccessFeature, Enrollment, FeatureEditor, FeaturePatch, NAME_MAX_CHARS, NO_EDITOR,
    NO_FLAG_SCOPE, Stage, check_url, enrollment, payload_of, slug,
};
use crate::entity::Patch;
use crate::error::MetadataError;
use crate::flags::{FlagId, FlagPatch, StoredFlag};
use crate::secrets::Seed;
use crate::violation::Violation;
use crate::{Metadata, Write, flags};
use weir_event::id::ProjectId;

impl Metadata {
    /// Creates a feature with the flag `flag`, or with a new one, whose key is made from the name.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project or user; [`MetadataError::Rejected`] for
    /// an invalid text, a flag that does not exist, has a feature, is for groups or has variants,
    /// and as [`Metadata::create_flag`] and [`Metadata::update_flag`]; [`MetadataError::Forbidden`]
    /// if the flag must be written and the caller may not.
    pub async fn create_feature(
        &self,
        project: ProjectId,
        by: FeatureEditor,
        flag: Option<FlagId>,
        mut new: FeaturePatch,
        seed: &Seed,
    ) -> Result<Arc<EarlyAccessFeature>, MetadataError> {
        let name = new.name.clone().unwrap_or_default();
        check_text("name", &name, NAME_MAX_CHARS)?;
        check_url(new.documentation_url.as_deref().unwrap_or_default())?;
        let mut write = self.begin().await?;
        write.base.project(project).ok_or(MetadataError::NotFound("project"))?;
        write.user(by.user)?;
        let stage = new.stage.unwrap_or_default();
        let flag = match flag {
            Some(id) => {
                let flag = write.free_flag(project, id)?;
                if stage.is_active() {
                    write.change_enrollment(by, &flag, Enrollment::Open).await?;
                }
                id
            }
            None => write.add_flag_of(project, by, &name, stage).await?,
        };
        new.payload = Some(payload_of(new.payload));
        let feature = new.applied(EarlyAccessFeature {
            id: seed.uuid("early access feature"),
            project,
            flag,
            created_by: Some(by.user),
            created_at: self.now(),
            ..EarlyAccessFeature::default()
        });
        write.create(by.user, &feature).await?;
        write.save_feature(feature).await
    }

    /// Changes a feature, and its flag if the stage requires it.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a feature in the project, others as
    /// [`Metadata::create_feature`].
    pub async fn update_feature(
        &self,
        project: ProjectId,
        by: FeatureEditor,
        id: Uuid,
        mut patch: FeaturePatch,
    ) -> Result<Arc<EarlyAccessFeature>, MetadataError> {
        let mut write = self.begin().await?;
        let before = write.feature(project, id)?;
        let (stage, rollout_to_all) = (patch.stage, patch.rollout_to_all);
        patch.payload = patch.payload.map(|given| payload_of(Some(given)));
        let feature = patch.applied(EarlyAccessFeature::clone(&before));
        check_text("name", &feature.name, NAME_MAX_CHARS)?;
        check_url(&feature.documentation_url)?;
        if let Some(stage) = stage
            && let Some(enrollment) = enrollment(before.stage, stage, rollout_to_all)
        {
            let flag = flags::rows::by_id(write.connection(), project, feature.flag).await?;
            let flag = flag.ok_or(MetadataError::NotFound("flag"))?;
            write.change_enrollment(by, &flag, enrollment).await?;
        }
        write.change(by.user, &*before, &feature).await?;
        write.save_feature(feature).await
    }

    /// Permanently removes a feature, and ends enrolment in its flag.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a feature in the project,
    /// [`MetadataError::Forbidden`] if the flag may not be written.
    pub async fn delete_feature(
        &self,
        project: ProjectId,
        by: FeatureEditor,
        id: Uuid,
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let feature = write.feature(project, id)?;
        let flag = flags::rows::by_id(write.connection(), project, feature.flag).await?;
        let flag = flag.ok_or(MetadataError::NotFound("flag"))?;
        write.change_enrollment(by, &flag, Enrollment::Closed).await?;
        write.remove(by.user, &*feature).await?;
        let flag = write.read_flag(project, feature.flag).await?;
        write
            .commit_with(|next| {
                next.remove_feature(&feature);
                next.put_flag(flag);
            })
            .await
    }
}

impl Write {
    fn feature(
        &self,
        project: ProjectId,
        id: Uuid,
    ) -> Result<Arc<EarlyAccessFeature>, MetadataError> {
        let found = self.base.features(project).iter().find(|feature| feature.id == id);
        found.cloned().ok_or(MetadataError::NotFound("early access feature"))
    }

    /// A flag that may become that of a feature.
    fn free_flag(&self, project: ProjectId, id: FlagId) -> Result<Arc<StoredFlag>, Violation> {
        let found = self.base.flags(project).iter().find(|flag| flag.id == id);
        let missing = || Violation::general("Feature Flag with this ID does not exist");
        let flag = found.ok_or_else(missing)?;
        let filters = &flag.filters;
        let is_for_groups =
            filters.get("aggregation_group_type_index").is_some_and(|index| !index.is_null());
        let variants = filters.pointer("/multivariate/variants").and_then(Value::as_array);
        let refused = |detail: String| Err(Violation::general(detail));
        if self.base.feature_of(flag).is_some() {
            let key = &flag.key;
            return refused(format!(
                "Linked feature flag {key} already has a feature attached to it."
            ));
        }
        if is_for_groups {
            let detail = "Group-based feature flags are not supported for Early Access Features.";
            return refused(detail.to_owned());
        }
        if variants.is_some_and(|variants| !variants.is_empty()) {
            let detail = "Multivariate feature flags are not supported for Early Access Features.";
            return refused(detail.to_owned());
        }
        Ok(Arc::clone(flag))
    }

    /// Creates the flag of a feature. Only users who enrol have it.
    async fn add_flag_of(
        &mut self,
        project: ProjectId,
        by: FeatureEditor,
        name: &str,
        stage: Stage,
    ) -> Result<FlagId, MetadataError> {
        if !by.may_write_flags {
            return Err(MetadataError::Forbidden(NO_FLAG_SCOPE));
        }
        let nobody = json!({"properties": [], "rollout_percentage": 0, "variant": null});
        let mut filters = json!({"groups": [nobody]});
        if stage.is_active() {
            filters = Enrollment::Open.of(&filters);
        }
        let new = FlagPatch {
            key: Some(slug(name)),
            name: Some(format!("Feature Flag for Early Access Feature {name}")),
            filters: Some(filters),
            ..FlagPatch::default()
        };
        self.add_flag(project, by.user, new).await
    }

    async fn change_enrollment(
        &mut self,
        by: FeatureEditor,
        flag: &StoredFlag,
        enrollment: Enrollment,
    ) -> Result<(), MetadataError> {
        if !by.may_write_flags {
            return Err(MetadataError::Forbidden(NO_FLAG_SCOPE));
        }
        self.check_editor(by.user, flag).map_err(|error| match error {
            MetadataError::Forbidden(_) => MetadataError::Forbidden(NO_EDITOR),
            other => other,
        })?;
        let filters = Some(enrollment.of(&flag.filters));
        if filters.as_ref() == Some(&flag.filters) {
            return Ok(());
        }
        let patch = FlagPatch { filters, ..FlagPatch::default() };
        self.change_flag(by.user, flag, patch, None).await
    }

    /// Commits a feature that was written in this transaction, with its flag.
    async fn save_feature(
        mut self,
        feature: EarlyAccessFeature,
    ) -> Result<Arc<EarlyAccessFeature>, MetadataError> {
        let feature = Arc::new(feature);
        let flag = self.read_flag(feature.project, feature.flag).await?;
        self.commit_with(|next| {
            next.put_flag(flag);
            next.put_feature(Arc::clone(&feature));
        })
        .await?;
        Ok(feature)
    }
}
