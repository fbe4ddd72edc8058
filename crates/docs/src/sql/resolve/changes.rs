//! INSERT, UPDATE and DELETE: which documents, what becomes of their fields, and what RETURNING asks of each.
//!
//! The documents and the new values are a query of their own, read whole before anything is written: a statement never
//! meets its own changes. RETURNING is another, asked of one document by its key.

use sqlparser::ast::{
    self, FromTable, Ident, ObjectName, SelectItem, SetExpr, Spanned, Statement, TableFactor, TableObject,
};
use sqlparser::tokenizer::Location;

use super::syntax::{parts, single};
use super::{Clause, Logical, Origin, Output, Resolved, Resolver, Table, invalid, not_yet};
use crate::catalog::Catalog;
use crate::sql::expr::{Affinity, Comparison, Expr};
use crate::sql::functions::{Function, JsonFunction};

/// What is done to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Insert,
    Update,
    Delete,
}

/// How a value of SQL becomes one of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A number, a text or NULL as it is; a field as it is stored.
    Plain,
    /// TRUE or FALSE.
    Truth,
    /// A text that is JSON.
    Json,
    /// What `json_extract` gives: JSON where it is an object or array.
    Extracted,
}

/// A statement that changes documents of one collection.
#[derive(Clone, Debug)]
pub(crate) struct Changing {
    pub(crate) collection: usize,
    pub(crate) action: Action,
    /// The fields given values, and how.
    pub(crate) fields: Vec<String>,
    pub(crate) forms: Vec<Vec<Form>>,
    /// Queries that give the documents: of INSERT the fields' values, else the key and then these.
    pub(crate) sources: Vec<Logical>,
    /// Other tables say what becomes of a document, so it may be found more than once.
    pub(crate) joined: bool,
    /// The last parameter is the document's key.
    pub(crate) returning: Option<Logical>,
}

/// Resolves a statement. Parameters are those of the last query: each has those of the ones before it, in their places.
pub(crate) fn resolve(statement: &Statement, catalog: &Catalog) -> Resolved<Changing> {
    match statement {
        Statement::Insert(insert) => insert_into(insert, catalog),
        Statement::Update(update) => update_of(update, catalog),
        Statement::Delete(delete) => delete_from(delete, catalog),
        other => not_yet("anything but SELECT, INSERT, UPDATE and DELETE", other.span().start),
    }
}

fn insert_into(insert: &ast::Insert, catalog: &Catalog) -> Resolved<Changing> {
    let at = insert.insert_token.0.span.start;
    if insert.or.is_some() || insert.on.is_some() || insert.replace_into {
        return not_yet("INSERT OR … and ON CONFLICT", at);
    }
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
    match &*source.body {
        SetExpr::Values(values) => {
            for row in &values.rows {
                let parameters = changing.parameters();
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
    changing.returning(insert.returning.as_deref(), catalog)?;
    Ok(changing)
}

/// The fields that INSERT names, or the schema's.
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
    resolver.key_output();
    let mut forms = Vec::new();
    for assignment in &update.assignments {
        let (names, values) = assigned(assignment)?;
        for name in names {
            let field = resolver.target(name)?;
            if field == resolver.info(0).key.field {
                return invalid(&format!("the key \"{field}\" cannot be changed"), name.span().start);
            }
            if changing.fields.contains(&field) {
                return invalid(&format!("\"{field}\" is given twice"), name.span().start);
            }
            changing.fields.push(field);
        }
        forms.extend(resolver.values(values)?);
    }
    resolver.condition(update.selection.as_ref())?;
    changing.joined = update.from.is_some();
    changing.forms.push(forms);
    changing.sources.push(resolver.logical);
    changing.returning(update.returning.as_deref(), catalog)?;
    Ok(changing)
}

/// What stands before `=`, and as many values: `field = value` or `(field, …) = (value, …)`.
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
    resolver.key_output();
    resolver.condition(delete.selection.as_ref())?;
    changing.sources.push(resolver.logical);
    changing.returning(delete.returning.as_deref(), catalog)?;
    Ok(changing)
}

impl Changing {
    fn new(collection: usize, action: Action, fields: Vec<String>) -> Changing {
        Changing { collection, action, fields, forms: Vec::new(), sources: Vec::new(), joined: false, returning: None }
    }

    fn parameters(&self) -> Vec<String> {
        self.sources.last().map_or_else(Vec::new, |source| source.parameters.clone())
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
        resolver.logical.parameters = self.parameters();
        let alias = match self.action {
            Action::Insert => catalog.collections[self.collection].name.clone(),
            _ => {
                let tables = &self.sources[0].tables;
                resolver.unseen = tables[1..].iter().map(|table| table.alias.clone()).collect();
                tables[0].alias.clone()
            }
        };
        let table = Table { origin: Origin::Collection(self.collection), alias, left_on: None };
        resolver.logical.tables.push(table);
        resolver.items(items, &[])?;
        let at = items.first().map_or(Location::empty(), |item| item.span().start);
        if !resolver.logical.aggregates.is_empty() || !resolver.logical.inner.is_empty() {
            return not_yet("an aggregate or an inner query in RETURNING", at);
        }
        let field = resolver.info(0).key.field.clone();
        let key = Expr::Column(resolver.column(0, &field));
        let sought = Expr::Parameter(resolver.logical.parameters.len());
        resolver.logical.parameters.push(String::new());
        let condition = Expr::Compare(Comparison::Equal, Affinity::None, Box::new(key), Box::new(sought));
        resolver.add_conditions(condition);
        self.returning = Some(resolver.logical);
        Ok(())
    }
}

impl<'c> Resolver<'c> {
    fn add_collection(&mut self, ident: &Ident) -> Resolved<usize> {
        let collection = self.collection_named(ident)?;
        let alias = ident.value.clone();
        self.logical.tables.push(Table { origin: Origin::Collection(collection), alias, left_on: None });
        Ok(collection)
    }

    fn changed_table(&mut self, factor: &'c TableFactor, at: Location) -> Resolved<usize> {
        self.table(factor, None)?;
        match self.logical.tables[0].collection() {
            Some(collection) => Ok(collection),
            None => invalid("only a collection can be changed", at),
        }
    }

    /// The field that a name before a value means.
    fn target(&self, name: &ObjectName) -> Resolved<String> {
        let at = name.span().start;
        let Some(ident) = single(name) else {
            return not_yet("a path as the target of a value (give the whole field)", at);
        };
        match self.field(0, &ident.value) {
            Some(field) => Ok(field),
            None if !self.info(0).closed => Ok(ident.value.clone()),
            None => self.no_field(&ident.value, &[0], at),
        }
    }

    fn key_output(&mut self) {
        let field = self.info(0).key.field.clone();
        let expr = Expr::Column(self.column(0, &field));
        self.logical.outputs.push(Output { name: "0".to_owned(), expr });
    }

    fn condition(&mut self, selection: Option<&'c ast::Expr>) -> Resolved<()> {
        if let Some(selection) = selection {
            let condition = self.expr(selection, Clause::Where)?;
            self.add_conditions(condition);
        }
        Ok(())
    }

    /// Values as result columns; how each becomes one of a document.
    fn values(&mut self, values: &'c [ast::Expr]) -> Resolved<Vec<Form>> {
        let mut forms = Vec::new();
        for value in values {
            let expr = self.expr(value, Clause::Where)?;
            if let Expr::Column(column) = &expr {
                self.logical.columns[*column].bare = true;
            }
            let is_truth = matches!(value, ast::Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)));
            forms.push(if is_truth { Form::Truth } else { form(&expr) });
            let name = self.logical.outputs.len().to_string();
            self.logical.outputs.push(Output { name, expr });
        }
        Ok(forms)
    }
}

fn form(expr: &Expr) -> Form {
    match expr {
        Expr::Call(Function::Json(JsonFunction::Extract), _) => Form::Extracted,
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
        | Expr::Arrow(false, ..) => Form::Json,
        _ => Form::Plain,
    }
}
