//! INSERT, UPDATE and DELETE: the documents, their new values, and RETURNING.
//!
//! The documents and the new values come from a query that never sees the statement's own changes: it is read completely before
//! the first write, or, if the statement is large, it reads the state before the statement. RETURNING is another query, run for one document by its key.

use sqlparser::ast::{
    self, FromTable, Ident, ObjectName, SelectItem, SetExpr, Spanned, Statement, TableFactor, TableObject,
};
use sqlparser::tokenizer::Location;

use super::names::{AS_JSON, EXCLUDED};
use super::syntax::{parts, single};
use super::{Clause, Logical, OutputColumn, QueryTable, Resolved, Resolver, RowSource, invalid, not_yet};
use crate::catalog::Catalog;
use crate::sql::expressions::{Affinity, Comparison, Expr};
use crate::sql::functions::{Function, JsonFunction};

/// The kind of change to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Insert,
    Update,
    Delete,
}

/// The conflict resolution of a new document whose key or unique value exists already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnConflict {
    /// The statement is refused.
    #[default]
    Refuse,
    /// The new document is skipped; with fields, only if the conflict is in these.
    LeaveOut(Option<Vec<String>>),
    /// It replaces the stored documents.
    Replace,
    /// The stored document is updated; with fields, only if the conflict is in these.
    Update(Option<Vec<String>>),
}

/// DO UPDATE: the changes to a stored document.
#[derive(Clone, Debug)]
pub(crate) struct Upsert<Q = Logical> {
    pub(crate) fields: Vec<String>,
    pub(crate) values: Vec<Assigned>,
    /// Returns the values, or no row if WHERE is not true. Its parameters are the statement's, `excluded.FIELD` for those of
    /// the new document, and last, without a name, the stored document's key.
    pub(crate) query: Q,
}

/// The source of a value of DO UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assigned {
    /// Computed by the query.
    Made(Conversion),
    /// The new document's value: its place among the fields of INSERT, if it is there.
    New(Option<usize>),
}

/// How an SQL value becomes one of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// A number, a text or NULL as it is; a field as it is stored.
    Plain,
    /// TRUE or FALSE.
    Truth,
    /// A text that contains JSON.
    Json,
    /// The result of `json_extract`: JSON if it is an object or array.
    Extracted,
}

/// A statement that changes documents of one collection, with queries in one of two forms: resolved, or prepared.
#[derive(Clone, Debug)]
pub(crate) struct Changing<Q = Logical> {
    pub(crate) collection: usize,
    pub(crate) action: Action,
    pub(crate) on_conflict: OnConflict,
    pub(crate) upsert: Option<Upsert<Q>>,
    /// The assigned fields, and the forms of their values.
    pub(crate) fields: Vec<String>,
    pub(crate) forms: Vec<Vec<Conversion>>,
    /// Queries that return the documents: for INSERT the fields' values, otherwise the key and then these.
    pub(crate) sources: Vec<Q>,
    /// UPDATE with FROM: other tables determine the values, so a document may be found more than once.
    pub(crate) joined: bool,
    /// DELETE without WHERE: all documents are deleted.
    pub(crate) is_whole: bool,
    /// RETURNING; its last parameter is the document's key.
    pub(crate) returning: Option<Q>,
    /// The names of the statement's parameters, by slot.
    pub(crate) parameters: Vec<String>,
}

/// Resolves a statement. Each of its queries has the parameters of the previous ones in the same slots, so the parameters of
/// the last query are those of the statement.
pub(crate) fn resolve(statement: &Statement, catalog: &Catalog) -> Resolved<Changing> {
    let mut changing = match statement {
        Statement::Insert(insert) => insert_into(insert, catalog)?,
        Statement::Update(update) => update_of(update, catalog)?,
        Statement::Delete(delete) => delete_from(delete, catalog)?,
        other => return not_yet("anything but SELECT, INSERT, UPDATE and DELETE", other.span().start),
    };
    changing.parameters = match &changing.returning {
        Some(returning) => returning.parameters[..returning.parameters.len() - 1].to_vec(),
        None => changing.parameters_so_far(),
    };
    Ok(changing)
}

fn insert_into(insert: &ast::Insert, catalog: &Catalog) -> Resolved<Changing> {
    let at = insert.insert_token.0.span.start;
    let TableObject::TableName(name) = &insert.table else { return not_yet("this form of INSERT", at) };
    let plain = insert.assignments.is_empty() && insert.partitioned.is_none() && insert.after_columns.is_empty();
    if !plain || insert.table_alias.is_some() || insert.insert_alias.is_some() || insert.overwrite {
        return not_yet("this form of INSERT", at);
    }
    let Some(ident) = single(name) else { return not_yet("a qualified collection name", at) };
    let mut resolver = Resolver::new(catalog);
    let collection = resolver.add_collection(ident)?;
    let fields = insert_fields(&resolver, &insert.columns, at)?;
    let Some(source) = &insert.source else { return not_yet("DEFAULT VALUES", at) };
    let mut changing = Changing::new(collection, Action::Insert, fields);
    changing.on_conflict = on_conflict(insert, &resolver, at)?;
    match &*source.body {
        SetExpr::Values(values) => {
            for row in &values.rows {
                let parameters = changing.parameters_so_far();
                let mut resolver = Resolver::new(catalog);
                resolver.logical.parameters = parameters;
                changing.check_width(row.content.len(), row.content.first().map_or(at, |e| e.span().start))?;
                let forms = resolver.values(&row.content)?;
                changing.forms.push(forms);
                changing.sources.push(resolver.logical);
            }
        }
        _ => {
            let mut resolver = Resolver::new(catalog);
            resolver.positional = true;
            let logical = resolver.query(source, &[])?;
            changing.check_width(logical.outputs.len(), source.span().start)?;
            changing.forms.push(logical.outputs.iter().map(|output| form(&output.expr)).collect());
            changing.sources.push(logical);
        }
    }
    if let Some(ast::OnInsert::OnConflict(on)) = &insert.on
        && let ast::OnConflictAction::DoUpdate(update) = &on.action
    {
        changing.upsert = Some(upsert(&changing, ident, update, catalog)?);
    }
    changing.returning(insert.returning.as_deref(), catalog)?;
    Ok(changing)
}

/// `INSERT OR REPLACE`, `INSERT OR IGNORE`, `ON CONFLICT DO NOTHING` and `DO UPDATE`.
fn on_conflict(insert: &ast::Insert, resolver: &Resolver<'_>, at: Location) -> Resolved<OnConflict> {
    use ast::SqliteOnConflict::{Abort, Fail, Ignore, Replace, Rollback};
    let or = match insert.or {
        None => None,
        Some(Abort) => Some(OnConflict::Refuse),
        Some(Ignore) => Some(OnConflict::LeaveOut(None)),
        Some(Replace) => Some(OnConflict::Replace),
        Some(Fail | Rollback) => {
            return not_yet("INSERT OR FAIL and OR ROLLBACK (a statement that is refused changes nothing)", at);
        }
    };
    let on = match &insert.on {
        None => return Ok(or.unwrap_or_default()),
        Some(ast::OnInsert::OnConflict(on)) => on,
        Some(_) => return not_yet("ON DUPLICATE KEY (say ON CONFLICT)", at),
    };
    if or.is_some() {
        return not_yet("INSERT OR … with ON CONFLICT", at);
    }
    let with = match on.action {
        ast::OnConflictAction::DoNothing => OnConflict::LeaveOut,
        ast::OnConflictAction::DoUpdate(_) => OnConflict::Update,
    };
    match &on.conflict_target {
        None => Ok(with(None)),
        Some(ast::ConflictTarget::Columns(columns)) => Ok(with(Some(conflict_fields(columns, resolver, at)?))),
        Some(_) => not_yet("ON CONFLICT ON CONSTRAINT", at),
    }
}

/// The fields of the key or unique constraint that these columns name, in any order.
fn conflict_fields(columns: &[Ident], resolver: &Resolver<'_>, at: Location) -> Resolved<Vec<String>> {
    let info = resolver.info(0);
    let is_named = |field: &String| columns.iter().any(|column| column.value.eq_ignore_ascii_case(field));
    let is_field = |column: &Ident, fields: &[String]| fields.iter().any(|f| f.eq_ignore_ascii_case(&column.value));
    let known = std::iter::once(std::slice::from_ref(&info.key.field));
    let mut known = known.chain(info.unique.iter().map(|unique| &unique.fields[..]));
    let found = known.find(|fields| fields.iter().all(is_named) && columns.iter().all(|c| is_field(c, fields)));
    if let Some(fields) = found {
        return Ok(fields.to_vec());
    }
    let named: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.value)).collect();
    let are = if named.len() == 1 { "which is neither the key nor unique" } else { "which are not unique together" };
    let place = columns.first().map_or(at, |column| column.span.start);
    invalid(&format!("ON CONFLICT of {}, {are}", named.join(", ")), place)
}

fn upsert(changing: &Changing, table: &Ident, update: &ast::DoUpdate, catalog: &Catalog) -> Resolved<Upsert> {
    let mut resolver = Resolver::new(catalog);
    resolver.logical.parameters = changing.parameters_so_far();
    resolver.has_excluded = true;
    resolver.add_collection(table)?;
    let (mut fields, mut values) = (Vec::new(), Vec::new());
    for Assignment { field, expr, form } in resolver.assignments(&update.assignments)? {
        fields.push(field);
        values.push(match excluded(expr) {
            None => Assigned::Made(form),
            Some(name) => {
                let name = resolver.field(0, name).unwrap_or_else(|| name.to_owned());
                Assigned::New(changing.fields.iter().position(|field| *field == name))
            }
        });
    }
    resolver.condition(update.selection.as_ref())?;
    if !resolver.logical.aggregates.is_empty() || !resolver.logical.inner.is_empty() {
        return not_yet("an aggregate or a subquery in DO UPDATE", table.span.start);
    }
    resolver.sought_by_key();
    Ok(Upsert { fields, values, query: resolver.logical })
}

/// The field, if a value is just `excluded.FIELD`.
fn excluded(value: &ast::Expr) -> Option<&str> {
    match value {
        ast::Expr::Nested(inner) => excluded(inner),
        ast::Expr::CompoundIdentifier(idents) => match &idents[..] {
            [first, field] if first.value.eq_ignore_ascii_case(EXCLUDED) => Some(&field.value),
            _ => None,
        },
        _ => None,
    }
}

/// The fields that INSERT names, or those of the schema.
fn insert_fields(resolver: &Resolver<'_>, columns: &[ObjectName], at: Location) -> Resolved<Vec<String>> {
    if columns.is_empty() {
        let info = resolver.info(0);
        if info.fields.is_empty() {
            return invalid("INSERT without a list of fields needs a schema", at);
        }
        return Ok(info.fields.iter().map(|field| field.name.clone()).collect());
    }
    let mut fields: Vec<String> = Vec::new();
    for column in columns {
        let field = resolver.target(column)?;
        if fields.contains(&field) {
            return invalid(&format!("\"{field}\" is given twice"), column.span().start);
        }
        fields.push(field);
    }
    Ok(fields)
}

fn update_of(update: &ast::Update, catalog: &Catalog) -> Resolved<Changing> {
    let at = update.update_token.0.span.start;
    if update.or.is_some() || !update.table.joins.is_empty() {
        return not_yet("UPDATE with a join or OR (say UPDATE … SET … FROM …)", at);
    }
    if !update.order_by.is_empty() || update.limit.is_some() {
        return not_yet("UPDATE with ORDER BY or LIMIT", at);
    }
    let mut resolver = Resolver::new(catalog);
    let collection = resolver.changed_table(&update.table.relation, at)?;
    let mut changing = Changing::new(collection, Action::Update, Vec::new());
    match &update.from {
        None => {}
        Some(ast::UpdateTableFromKind::AfterSet(from)) => resolver.from(from)?,
        Some(ast::UpdateTableFromKind::BeforeSet(_)) => return not_yet("FROM before SET", at),
    }
    if resolver.has_nested_joins() {
        return not_yet("a join in parentheses after LEFT JOIN in UPDATE (make it a query with a name)", at);
    }
    resolver.key_output();
    let mut forms = Vec::new();
    for Assignment { field, form, .. } in resolver.assignments(&update.assignments)? {
        changing.fields.push(field);
        forms.push(form);
    }
    resolver.condition(update.selection.as_ref())?;
    changing.joined = update.from.is_some();
    changing.forms.push(forms);
    changing.sources.push(resolver.logical);
    changing.returning(update.returning.as_deref(), catalog)?;
    Ok(changing)
}

/// A field and its new value.
struct Assignment<'c> {
    field: String,
    expr: &'c ast::Expr,
    form: Conversion,
}

/// The fields before `=` and one value for each: `field = value` or `(field, …) = (value, …)`.
fn assigned(assignment: &ast::Assignment) -> Resolved<(&[ObjectName], &[ast::Expr])> {
    let (value, at) = (&assignment.value, assignment.value.span().start);
    let names = match &assignment.target {
        ast::AssignmentTarget::ColumnName(name) => {
            return Ok((std::slice::from_ref(name), std::slice::from_ref(value)));
        }
        ast::AssignmentTarget::Tuple(names) => &names[..],
    };
    let values = match (parts(value), value) {
        (Some(values), _) => values,
        (None, ast::Expr::Nested(inner)) if names.len() == 1 => std::slice::from_ref(&**inner),
        (None, ast::Expr::Subquery(_)) => return not_yet("a query for several fields (say one for each)", at),
        _ => return invalid("a list of fields takes a row of values", at),
    };
    match values.len() == names.len() {
        true => Ok((names, values)),
        false => invalid(&format!("{} values for {} fields", values.len(), names.len()), at),
    }
}

fn delete_from(delete: &ast::Delete, catalog: &Catalog) -> Resolved<Changing> {
    let at = delete.delete_token.0.span.start;
    let FromTable::WithFromKeyword(from) = &delete.from else { return not_yet("DELETE without FROM", at) };
    let [table] = &from[..] else { return not_yet("DELETE from several collections", at) };
    if delete.using.is_some() || !delete.tables.is_empty() || !table.joins.is_empty() {
        return not_yet("DELETE with a join (say which documents with WHERE key IN (SELECT …))", at);
    }
    if !delete.order_by.is_empty() || delete.limit.is_some() {
        return not_yet("DELETE with ORDER BY or LIMIT", at);
    }
    let mut resolver = Resolver::new(catalog);
    let collection = resolver.changed_table(&table.relation, at)?;
    let mut changing = Changing::new(collection, Action::Delete, Vec::new());
    changing.is_whole = delete.selection.is_none();
    resolver.key_output();
    resolver.condition(delete.selection.as_ref())?;
    changing.sources.push(resolver.logical);
    changing.returning(delete.returning.as_deref(), catalog)?;
    Ok(changing)
}

impl Changing {
    fn new(collection: usize, action: Action, fields: Vec<String>) -> Changing {
        Changing {
            collection,
            action,
            on_conflict: OnConflict::default(),
            upsert: None,
            fields,
            forms: Vec::new(),
            sources: Vec::new(),
            joined: false,
            is_whole: false,
            returning: None,
            parameters: Vec::new(),
        }
    }

    /// The parameters of the statement so far.
    fn parameters_so_far(&self) -> Vec<String> {
        match &self.upsert {
            None => self.sources.last().map_or_else(Vec::new, |source| source.parameters.clone()),
            Some(upsert) => {
                let all = upsert.query.parameters.iter();
                all.filter(|name| !name.is_empty() && !name.contains('.')).cloned().collect()
            }
        }
    }

    fn check_width(&self, given: usize, at: Location) -> Resolved<()> {
        if given == self.fields.len() {
            return Ok(());
        }
        invalid(&format!("{given} values for {} fields", self.fields.len()), at)
    }

    fn returning(&mut self, items: Option<&[SelectItem]>, catalog: &Catalog) -> Resolved<()> {
        let Some(items) = items else { return Ok(()) };
        let mut resolver = Resolver::new(catalog);
        resolver.logical.parameters = self.parameters_so_far();
        let alias = match self.action {
            Action::Insert => catalog.collections[self.collection].name.clone(),
            _ => {
                let tables = &self.sources[0].tables;
                resolver.unseen = tables[1..].iter().map(|table| table.alias.clone()).collect();
                tables[0].alias.clone()
            }
        };
        let table = QueryTable { origin: RowSource::Collection(self.collection), alias, left_on: None };
        resolver.logical.tables.push(table);
        resolver.items(items, &[])?;
        let at = items.first().map_or(Location::empty(), |item| item.span().start);
        if !resolver.logical.aggregates.is_empty() || !resolver.logical.inner.is_empty() {
            return not_yet("an aggregate or a subquery in RETURNING", at);
        }
        resolver.sought_by_key();
        self.returning = Some(resolver.logical);
        Ok(())
    }
}

impl<Q> Changing<Q> {
    /// The same with each query in another form.
    pub(crate) fn map<R>(self, mut form: impl FnMut(Q) -> R) -> Changing<R> {
        let Changing { collection, action, on_conflict, fields, forms, joined, is_whole, parameters, .. } = self;
        let sources = self.sources.into_iter().map(&mut form).collect();
        let upsert = self.upsert.map(|upsert| {
            let Upsert { fields, values, query } = upsert;
            Upsert { fields, values, query: form(query) }
        });
        let returning = self.returning.map(form);
        Changing {
            collection,
            action,
            on_conflict,
            upsert,
            fields,
            forms,
            sources,
            joined,
            is_whole,
            returning,
            parameters,
        }
    }
}

/// The field that a parameter of DO UPDATE stands for, and whether its JSON is needed: a value of the new document. `None` for
/// a parameter of the statement.
pub(crate) fn excluded_field(parameter: &str) -> Option<(&str, bool)> {
    let field = parameter.strip_prefix(EXCLUDED)?.strip_prefix('.')?;
    Some(field.strip_suffix(AS_JSON).map_or((field, false), |field| (field, true)))
}

impl<'c> Resolver<'c> {
    fn add_collection(&mut self, ident: &Ident) -> Resolved<usize> {
        let collection = self.collection_named(ident)?;
        let alias = ident.value.clone();
        self.logical.tables.push(QueryTable { origin: RowSource::Collection(collection), alias, left_on: None });
        Ok(collection)
    }

    fn changed_table(&mut self, factor: &'c TableFactor, at: Location) -> Resolved<usize> {
        self.table(factor, None)?;
        match self.logical.tables[0].collection() {
            Some(collection) => Ok(collection),
            None => invalid("only a collection can be changed", at),
        }
    }

    /// The field to which a name on the left side refers.
    fn target(&self, name: &ObjectName) -> Resolved<String> {
        match single(name) {
            Some(ident) => self.field_of(0, ident),
            None => not_yet("a path as the target of a value (give the whole field)", name.span().start),
        }
    }

    /// The assigned fields, none of which may be the key, and their values as further results. Of several assignments to one
    /// field the last counts, as in SQLite; the others are only checked.
    fn assignments(&mut self, list: &'c [ast::Assignment]) -> Resolved<Vec<Assignment<'c>>> {
        let mut named = Vec::new();
        for assignment in list {
            let (names, values) = assigned(assignment)?;
            for (name, value) in names.iter().zip(values) {
                let field = self.target(name)?;
                if field == self.info(0).key.field {
                    return invalid(&format!("the key \"{field}\" cannot be changed"), name.span().start);
                }
                named.push((field, value));
            }
        }
        let mut assignments = Vec::new();
        for (place, (field, expr)) in named.iter().enumerate() {
            let forms = self.values(std::slice::from_ref(*expr))?;
            if named[place + 1..].iter().any(|(later, _)| later == field) {
                self.logical.outputs.pop();
                continue;
            }
            assignments.extend(forms.into_iter().map(|form| Assignment { field: field.clone(), expr, form }));
        }
        Ok(assignments)
    }

    /// Restricts the query to the document whose key is the last parameter.
    fn sought_by_key(&mut self) {
        let field = self.info(0).key.field.clone();
        let key = Expr::Column(self.column(0, &field));
        let sought = Expr::Parameter(self.logical.parameters.len());
        self.logical.parameters.push(String::new());
        let condition = Expr::Compare(Comparison::Equal, Affinity::None, Box::new(key), Box::new(sought));
        self.add_conditions(condition);
    }

    fn key_output(&mut self) {
        let field = self.info(0).key.field.clone();
        let expr = Expr::Column(self.column(0, &field));
        self.logical.outputs.push(OutputColumn { name: "0".to_owned(), expr });
    }

    fn condition(&mut self, selection: Option<&'c ast::Expr>) -> Resolved<()> {
        if let Some(selection) = selection {
            let condition = self.expr(selection, Clause::Where)?;
            self.add_conditions(condition);
        }
        Ok(())
    }

    /// Marks the result of CASE or COALESCE so that it keeps its stored form.
    fn as_stored(&mut self, expr: Expr) -> Expr {
        match expr {
            Expr::Coalesce(_) | Expr::Case(..) | Expr::CaseOf(..) => {
                Expr::Call(Function::Json(JsonFunction::AsStored), vec![self.one_as_stored(expr)])
            }
            other => other,
        }
    }

    fn one_as_stored(&mut self, expr: Expr) -> Expr {
        match expr {
            Expr::Column(column) => {
                self.logical.columns[column].bare = true;
                Expr::Column(column)
            }
            Expr::Parameter(slot) if self.logical.parameters[slot].contains('.') => {
                let name = format!("{}{AS_JSON}", self.logical.parameters[slot]);
                let known = self.logical.parameters.iter().position(|known| *known == name);
                let slot = known.unwrap_or_else(|| {
                    self.logical.parameters.push(name);
                    self.logical.parameters.len() - 1
                });
                Expr::Call(Function::Json(JsonFunction::Raw), vec![Expr::Parameter(slot)])
            }
            Expr::Coalesce(list) => Expr::Coalesce(list.into_iter().map(|e| self.one_as_stored(e)).collect()),
            Expr::Case(arms, last) => {
                let arms = arms.into_iter().map(|(when, then)| (when, self.one_as_stored(then))).collect();
                Expr::Case(arms, Box::new(self.one_as_stored(*last)))
            }
            Expr::CaseOf(operand, arms, last) => {
                let arms = arms.into_iter().map(|(by, when, then)| (by, when, self.one_as_stored(then))).collect();
                Expr::CaseOf(operand, arms, Box::new(self.one_as_stored(*last)))
            }
            other => other,
        }
    }

    /// Adds values as result columns; returns the form of each.
    fn values(&mut self, values: &'c [ast::Expr]) -> Resolved<Vec<Conversion>> {
        let mut forms = Vec::new();
        for value in values {
            let expr = self.expr(value, Clause::Where)?;
            if let Expr::Column(column) = &expr {
                self.logical.columns[*column].bare = true;
            }
            let expr = self.as_stored(expr);
            let is_truth = matches!(value, ast::Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)));
            forms.push(if is_truth { Conversion::Truth } else { form(&expr) });
            let name = self.logical.outputs.len().to_string();
            self.logical.outputs.push(OutputColumn { name, expr });
        }
        Ok(forms)
    }
}

fn form(expr: &Expr) -> Conversion {
    match expr {
        Expr::Call(Function::Json(JsonFunction::Extract), _) => Conversion::Extracted,
        Expr::Call(
            Function::Json(
                JsonFunction::Array
                | JsonFunction::Object
                | JsonFunction::Minify
                | JsonFunction::Quote
                | JsonFunction::Put(_)
                | JsonFunction::Remove
                | JsonFunction::Patch,
            ),
            _,
        )
        | Expr::Arrow(false, ..) => Conversion::Json,
        _ => Conversion::Plain,
    }
}
