//! Types of undeclared path parameters, inferred from the statements of their endpoints.
//!
//! A path parameter is text unless it is declared otherwise, is a key of the collection in which `require` finds a document, or
//! the endpoint's statements only compare it with, or assign it to, fields that are always numeric. As text it would never equal
//! such a field, without any error.

use crate::config::{Action, EndpointConfig, ServiceConfig, path_parameters};
use crate::declared::path_parameter::parameter;
use crate::declared::steps;
use docs::catalog::Catalog;
use docs::config::{Parameter, ParameterKind};
use docs::sql::{ParameterUses, PreparedQuery};

/// The configuration with the types inferred from its statements, as if they were declared.
pub(super) fn with_types(config: &ServiceConfig, catalog: &Catalog) -> ServiceConfig {
    let mut typed = config.clone();
    for endpoint in &mut typed.endpoints {
        let is_known = |name: &str| {
            endpoint.path_params.iter().any(|parameter| parameter.name == name)
                || endpoint.require.as_ref().is_some_and(|target| target.parameter == name)
        };
        let unknown = path_parameters(&endpoint.pattern).filter(|name| !is_known(name));
        let typed = unknown.filter_map(|name| {
            let compared = compared(name, endpoint, &config.docs.params, catalog)?;
            let kind = match compared {
                _ if compared.is_integer() => ParameterKind::Integer,
                _ if compared.is_number() => ParameterKind::Number,
                _ => return None,
            };
            Some(parameter(name, kind))
        });
        let typed: Vec<Parameter> = typed.collect();
        endpoint.path_params.extend(typed);
    }
    typed
}

/// `None` if the statements have mistakes: these are reported when they are prepared.
fn compared(name: &str, endpoint: &EndpointConfig, file: &[Parameter], catalog: &Catalog) -> Option<ParameterUses> {
    match &endpoint.action {
        Action::Query { sql, .. } => Some(PreparedQuery::prepare(sql, catalog).ok()?.compared(name)),
        Action::Steps { steps, .. } => Some(steps::prepare_steps(steps, endpoint, file, catalog).ok()?.compared(name)),
        _ => None,
    }
}
