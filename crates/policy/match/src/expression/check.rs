//! Static checks of an expression, and its rewriting for evaluation.
//!
//! Every name must be known. Dotted names become one identifier, look-ups in tables become calls of a
//! function that returns an empty text for a missing name, and loops, copies and concatenations are charged
//! to the budget.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, SelectExpr,
    operators,
};
use cel::common::types::CelString;
use egret_config::{VariableError, suggest, variable};
use egret_items::words;

use super::budget::charged;
use super::error::ExpressionError;
use super::inputs::Scope;
use super::values::{LOOK_UP, Variable};

/// The bit of a set of variables for the environment. Variables have lower ones.
const ENVIRONMENT_BIT: u32 = 1 << 31;

/// A set of variables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Variables(u32);

impl Variables {
    /// Returns `true` if the set contains `variable`.
    pub fn contains(self, variable: Variable) -> bool {
        self.0 & 1 << (variable as u16) != 0
    }

    /// Notes that the expression reads the environment.
    fn insert_environment(&mut self) {
        self.0 |= ENVIRONMENT_BIT;
    }

    fn insert(&mut self, variable: Variable) {
        self.0 |= 1 << (variable as u16);
    }
}

/// Functions that can be called, with their result types.
const FUNCTIONS: [(&str, ValueType); 12] = [
    ("size", ValueType::Number),
    ("contains", ValueType::Bool),
    ("startsWith", ValueType::Bool),
    ("endsWith", ValueType::Bool),
    ("int", ValueType::Number),
    ("uint", ValueType::Number),
    ("double", ValueType::Number),
    ("string", ValueType::Text),
    ("bytes", ValueType::Other),
    ("bool", ValueType::Bool),
    ("type", ValueType::Other),
    ("dyn", ValueType::Unknown),
];

/// Macros. The parser has already expanded the valid uses.
const MACROS: [&str; 6] = ["has", "all", "exists", "exists_one", "map", "filter"];

/// Names of types, for comparison with `type(x)`.
const TYPES: [&str; 11] =
    ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "dyn"];

/// Checks an expression and rewrites it. Returns the variables that it names.
pub(super) fn check(tree: &mut IdedExpr, scope: Scope<'_>) -> Result<Variables, ExpressionError> {
    let mut check = Check { scope, variables: Variables::default(), loops: Vec::new() };
    check.visit(tree)?;
    Ok(check.variables)
}

struct Check<'a> {
    scope: Scope<'a>,
    variables: Variables,
    /// Variables of the enclosing loops, outermost first.
    loops: Vec<String>,
}

type Checked = Result<(), ExpressionError>;

impl Check<'_> {
    fn visit(&mut self, node: &mut IdedExpr) -> Checked {
        if let Some(name) = self.outside_name(node) {
            return self.visit_name(node, &name);
        }
        match &mut node.expr {
            Expr::Unspecified => Err(ExpressionError::new("a part of this expression is empty")),
            Expr::Literal(_) | Expr::Ident(_) => Ok(()),
            Expr::Select(select) => self.visit(&mut select.operand),
            Expr::Struct(_) => {
                Err(ExpressionError::new("message types are not supported: use a map, `{\"a\": 1}`"))
            }
            Expr::List(list) => list.elements.iter_mut().try_for_each(|element| self.visit_copied(element)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| self.visit_entry(entry)),
            Expr::Call(_) => self.visit_call(node),
            Expr::Comprehension(comprehension) => self.visit_loop(comprehension),
        }
    }

    /// Returns the dotted name that `node` spells, unless it begins with a loop variable.
    fn outside_name(&self, node: &IdedExpr) -> Option<String> {
        let mut parts = Vec::new();
        let mut node = node;
        let root = loop {
            match &node.expr {
                Expr::Ident(name) => break name,
                Expr::Select(SelectExpr { operand, field, test: false }) => {
                    parts.push(field.as_str());
                    node = operand;
                }
                _ => return None,
            }
        };
        if root.starts_with('@') || self.loops.contains(root) {
            return None;
        }
        parts.push(root);
        parts.reverse();
        Some(parts.join("."))
    }

    fn visit_name(&mut self, node: &mut IdedExpr, name: &str) -> Checked {
        if TYPES.contains(&name) {
            return Ok(());
        }
        let found = Variable::ALL.into_iter().find(|known| {
            name.strip_prefix(known.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        let Some(variable) = found else { return Err(self.unknown(name)) };
        let known = variable.name();
        if variable.stage() > self.scope.stage {
            let why = self.scope.stage.limitation();
            return Err(ExpressionError::new(format!("`{known}` is not available: {why}")));
        }
        self.variables.insert(variable);
        let fields: Vec<&str> = name[known.len()..].split('.').filter(|field| !field.is_empty()).collect();
        let mut flat = IdedExpr { id: node.id, expr: Expr::Ident(known.to_owned()) };
        for (depth, field) in fields.into_iter().enumerate() {
            flat = match (depth, variable.is_table()) {
                (0, true) => self.looked_up(variable, flat, text(field))?,
                _ => select(flat, field),
            };
        }
        *node = self.charged_in_loops(flat);
        Ok(())
    }

    fn unknown(&self, name: &str) -> ExpressionError {
        let candidates = Variable::ALL.into_iter().filter(|variable| variable.stage() <= self.scope.stage);
        let candidates = candidates.map(Variable::name);
        let depth = name.split('.').count().min(2);
        let start: String = name.split('.').take(depth).collect::<Vec<_>>().join(".");
        if matches!(start.as_str(), "request" | "response" | "usage" | "grpc") {
            let member = match start.as_str() {
                "usage" => "input",
                "grpc" => "method",
                _ => "headers",
            };
            let message = format!("`{start}` is not a value: use a member of it, like `{start}.{member}`");
            return ExpressionError::new(message);
        }
        // `req.method` is far from `request.method`, and yet means nothing else.
        let abbreviated = || {
            let (object, member) = start.split_once('.')?;
            candidates.clone().find(|known| {
                known.starts_with(object) && known.split_once('.').is_some_and(|(_, other)| other == member)
            })
        };
        let suggestion = abbreviated().or_else(|| suggest(&start, candidates.clone())).map(str::to_owned);
        let message = format!("there is no variable `{start}`");
        ExpressionError { suggestion, ..ExpressionError::new(message) }
    }

    /// Builds `table[name]` without an error for a missing name.
    fn looked_up(
        &self,
        variable: Variable,
        table: IdedExpr,
        name: IdedExpr,
    ) -> Result<IdedExpr, ExpressionError> {
        if let (Variable::Parameters, Expr::Literal(LiteralValue::String(name))) = (variable, &name.expr) {
            self.scope.missing_parameter(name.inner()).map_or(Ok(()), Err)?;
        }
        let call = CallExpr { func_name: LOOK_UP.to_owned(), target: None, args: vec![table, name] };
        Ok(IdedExpr { id: 0, expr: Expr::Call(call) })
    }

    /// Charges for a variable that is read in a loop, because it is read in each round.
    fn charged_in_loops(&self, node: IdedExpr) -> IdedExpr {
        if self.loops.is_empty() { node } else { charged(node, 1) }
    }

    fn visit_entry(&mut self, entry: &mut IdedEntryExpr) -> Checked {
        match &mut entry.expr {
            EntryExpr::MapEntry(entry) => {
                self.visit_copied(&mut entry.key)?;
                self.visit_copied(&mut entry.value)
            }
            EntryExpr::StructField(_) => Err(ExpressionError::new("message types are not supported")),
        }
    }

    fn visit_copied(&mut self, node: &mut IdedExpr) -> Checked {
        self.visit(node)?;
        charge(node, 1);
        Ok(())
    }

    fn visit_call(&mut self, node: &mut IdedExpr) -> Checked {
        let Expr::Call(call) = &mut node.expr else { return Ok(()) };
        if call.func_name == ENVIRONMENT && call.target.is_none() {
            let value = environment(call)?;
            self.variables.insert_environment();
            *node = text(&value);
            return Ok(());
        }
        if !is_operator(&call.func_name) {
            check_function(call)?;
        }
        if let Some(target) = &mut call.target {
            self.visit(target)?;
        }
        if call.func_name == operators::INDEX
            && let [table, name] = call.args.as_mut_slice()
            && let Some(variable) = self.outside_name(table).and_then(|name| Variable::named(&name))
            && variable.is_table()
        {
            self.visit_name(table, &self.outside_name(table).unwrap_or_default())?;
            self.visit(name)?;
            let (table, name) = (std::mem::take(table), std::mem::take(name));
            *node = self.charged_in_loops(self.looked_up(variable, table, name)?);
            return Ok(());
        }
        call.args.iter_mut().try_for_each(|arg| self.visit(arg))?;
        if call.func_name == operators::ADD && !is_append(call) {
            charge(node, 1);
        }
        Ok(())
    }

    fn visit_loop(&mut self, comprehension: &mut ComprehensionExpr) -> Checked {
        let ComprehensionExpr {
            iter_range,
            iter_var,
            iter_var2,
            accu_init,
            loop_cond,
            loop_step,
            result,
            ..
        } = comprehension;
        if self
            .outside_name(iter_range)
            .and_then(|name| Variable::named(&name))
            .is_some_and(Variable::is_table)
        {
            let message = "headers, query and params cannot be iterated: look up values by name";
            return Err(ExpressionError::new(message));
        }
        self.visit(iter_range)?;
        self.visit(accu_init)?;
        let depth = self.loops.len();
        for name in [Some(iter_var), iter_var2.as_mut()].into_iter().flatten() {
            if matches!(name.as_str(), "request" | "response" | "attempt" | "now") {
                return Err(ExpressionError::new(format!(
                    "`{name}` is already a variable: choose another name"
                )));
            }
            self.loops.push(name.clone());
        }
        self.visit(loop_cond)?;
        self.visit(loop_step)?;
        self.visit(result)?;
        self.loops.truncate(depth);
        let weight = nodes(loop_cond) + nodes(loop_step) + 1;
        charge(iter_range, weight);
        Ok(())
    }
}

/// Returns `true` if `call` appends to the accumulator of a loop, which happens in place without a copy.
fn is_append(call: &CallExpr) -> bool {
    matches!(call.args.as_slice(), [IdedExpr { expr: Expr::Ident(name), .. }, _] if name.starts_with('@'))
}

fn charge(node: &mut IdedExpr, weight: u32) {
    *node = charged(std::mem::take(node), weight);
}

fn text(text: &str) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::String(CelString::from(text.to_owned()))) }
}

fn select(operand: IdedExpr, field: &str) -> IdedExpr {
    let select = SelectExpr { operand: Box::new(operand), field: field.to_owned(), test: false };
    IdedExpr { id: 0, expr: Expr::Select(select) }
}

fn is_operator(name: &str) -> bool {
    name.starts_with('@') || !name.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn check_function(call: &CallExpr) -> Checked {
    let name = call.func_name.as_str();
    if FUNCTIONS.iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    if MACROS.contains(&name) {
        return Err(ExpressionError::new(format!("wrong use of `{name}`: write it like {}", usage(name))));
    }
    let known = FUNCTIONS.iter().map(|(known, _)| *known).chain(MACROS).chain([ENVIRONMENT]);
    let suggestion = suggest(name, known).map(str::to_owned);
    Err(ExpressionError { suggestion, ..ExpressionError::new(format!("there is no function `{name}`")) })
}

/// The function that stands for a variable of the environment. Its value is read when the expression is
/// compiled, and is a text, whatever it contains.
const ENVIRONMENT: &str = "env";

fn environment(call: &CallExpr) -> Result<String, ExpressionError> {
    let literal = |arg: &IdedExpr| match &arg.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner().to_owned()),
        _ => None,
    };
    let texts: Option<Vec<String>> = call.args.iter().map(literal).collect();
    let value = match texts.as_deref() {
        Some([name]) => variable(name, None),
        Some([name, default]) => variable(name, Some(default)),
        _ => {
            let message =
                "wrong use of `env`: write it like `env(\"NAME\")`, or `env(\"NAME\", \"default\")`";
            return Err(ExpressionError::new(message));
        }
    };
    value.map_err(|error| {
        ExpressionError::new(match error {
            VariableError::NotSet(name) | VariableError::Empty(name) => format!(
                "the environment variable {name} is not set or empty: set it, or write a default, `env(\"{name}\", \"default\")`"
            ),
            error => error.to_string(),
        })
    })
}

fn usage(name: &str) -> String {
    match name {
        "has" => "`has(request.headers.accept)`".to_owned(),
        _ => format!("`request.body.items.{name}(item, item.price > 0)`"),
    }
}

/// Returns the number of operators, names and values in an expression.
fn nodes(node: &IdedExpr) -> u32 {
    let of_entry = |entry: &IdedEntryExpr| match &entry.expr {
        EntryExpr::MapEntry(entry) => nodes(&entry.key) + nodes(&entry.value),
        EntryExpr::StructField(field) => nodes(&field.value),
    };
    1 + match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => 0,
        Expr::Select(select) => nodes(&select.operand),
        Expr::Call(call) => {
            call.target.iter().map(|target| nodes(target)).chain(call.args.iter().map(nodes)).sum()
        }
        Expr::List(list) => list.elements.iter().map(nodes).sum(),
        Expr::Map(map) => map.entries.iter().map(of_entry).sum(),
        Expr::Struct(made) => made.entries.iter().map(of_entry).sum(),
        Expr::Comprehension(comprehension) => {
            nodes(&comprehension.iter_range)
                + nodes(&comprehension.loop_cond)
                + nodes(&comprehension.loop_step)
        }
    }
}

words! {
    /// The statically known type of an expression's value.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ValueType: Display {
        /// Unknown.
        Unknown => "anything",
        /// Boolean.
        Bool => "true or false",
        /// A number.
        Number => "a number",
        /// Text.
        Text => "text",
        /// Another type: a list, a map, null, a type.
        Other => "a list, a map or another type",
    }
}

/// Returns the statically known type of a checked expression's value.
pub(super) fn known(node: &IdedExpr) -> ValueType {
    match &node.expr {
        Expr::Literal(literal) => of_literal(literal),
        Expr::Ident(name) => Variable::named(name).map_or(ValueType::Unknown, of_variable),
        Expr::Select(select) if select.test => ValueType::Bool,
        Expr::List(_) | Expr::Map(_) => ValueType::Other,
        Expr::Call(call) => of_call(call),
        Expr::Select(_) | Expr::Comprehension(_) | Expr::Struct(_) | Expr::Unspecified => ValueType::Unknown,
    }
}

fn of_literal(literal: &LiteralValue) -> ValueType {
    match literal {
        LiteralValue::Boolean(_) => ValueType::Bool,
        LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => ValueType::Number,
        LiteralValue::String(_) => ValueType::Text,
        LiteralValue::Bytes(_) | LiteralValue::Null => ValueType::Other,
    }
}

fn of_variable(variable: Variable) -> ValueType {
    match variable {
        Variable::RequestBody | Variable::ResponseBody => ValueType::Unknown,
        Variable::ResponseStatus
        | Variable::ResponseDuration
        | Variable::ResponseProviderTime
        | Variable::UsageInput
        | Variable::UsageOutput
        | Variable::UsageCached
        | Variable::UsageReasoning
        | Variable::UsageCost
        | Variable::Attempt
        | Variable::Now => ValueType::Number,
        Variable::ResponseGenerated => ValueType::Bool,
        variable if variable.is_table() => ValueType::Other,
        _ => ValueType::Text,
    }
}

fn of_call(call: &CallExpr) -> ValueType {
    use operators as is;
    let same = |a: &IdedExpr, b: &IdedExpr| if known(a) == known(b) { known(a) } else { ValueType::Unknown };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (
            is::LOGICAL_AND
            | is::LOGICAL_OR
            | is::LOGICAL_NOT
            | is::EQUALS
            | is::NOT_EQUALS
            | is::GREATER
            | is::GREATER_EQUALS
            | is::LESS
            | is::LESS_EQUALS
            | is::IN,
            _,
        ) => ValueType::Bool,
        (is::SUBSTRACT | is::MULTIPLY | is::DIVIDE | is::MODULO | is::NEGATE, _) => ValueType::Number,
        (is::ADD, [a, b]) | (is::CONDITIONAL, [_, a, b]) => same(a, b),
        (LOOK_UP, _) => ValueType::Text,
        (name, [value, _]) if name.starts_with("@charge") => known(value),
        (name, _) => {
            FUNCTIONS.iter().find(|(known, _)| *known == name).map_or(ValueType::Unknown, |(_, known)| *known)
        }
    }
}
