//! Parser of written types.

use super::lexer::TokenKind;
use super::parser::{Parser, describe};
use super::place::{Error, Place};
use super::{Ident, TypeExpr, TypeKind};

const FORMS: &str = "a type is written like `bf16[N, H]`, `i32`, `[N]`, `dist f64[N, K]` or `state`";

/// The whole text as one type.
pub(super) fn whole(place: Place) -> Result<TypeExpr, Error> {
    let mut parser = Parser::new(place)?;
    let from = parser.peek().at.start;
    let kind = kind(&mut parser)?;
    if !parser.at_end() {
        return Err(trailing(&parser, &kind));
    }
    Ok(TypeExpr { span: place.span(from..parser.last_end()), kind })
}

fn word(parser: &mut Parser) -> Option<Ident> {
    let token = parser.peek().clone();
    let TokenKind::Word(name) = token.kind else { return None };
    parser.advance();
    Some(Ident { name, span: parser.place.span(token.at) })
}

fn kind(parser: &mut Parser) -> Result<TypeKind, Error> {
    let mut dtype = word(parser);
    let dist = dtype.as_ref().is_some_and(|w| w.name == "dist");
    if dist {
        dtype = word(parser);
    } else if dtype.as_ref().is_some_and(|w| w.name == "state") {
        return Ok(TypeKind::State);
    }
    let Some(open) = parser.eat("[") else {
        if dtype.is_some() {
            return Ok(TypeKind::Tensor { dist, dtype, dims: Vec::new() });
        }
        let found = parser.peek();
        let what = if dist { "a dtype or `[` behind `dist`" } else { "a type" };
        let message = format!("expected {what}, found {}", describe(&found.kind));
        return Err(parser.place.error(found.at.clone(), message).map(|d| d.help(FORMS)));
    };
    let (dims, _) = parser.list(&open, "]", "type")?;
    Ok(TypeKind::Tensor { dist, dtype, dims })
}

fn trailing(parser: &Parser, kind: &TypeKind) -> Error {
    let found = parser.peek();
    let help = match (&found.kind, kind) {
        (_, TypeKind::State) => "`state` has neither dtype nor dims; both are declared under `state:`",
        (TokenKind::Sign("("), _) => "dims stand in brackets: `bf16[N, H]`",
        (TokenKind::Sign("]"), _) => "remove the `]`, or open it before",
        (TokenKind::Word(_), TypeKind::Tensor { dtype: Some(_), dims, .. }) if dims.is_empty() => {
            "only `dist` stands before the dtype"
        }
        _ => FORMS,
    };
    let message = format!("a type ends before {}", describe(&found.kind));
    parser.place.error(found.at.clone(), message).map(|d| d.help(help))
}
