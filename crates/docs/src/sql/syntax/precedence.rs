//! SQLite's precedences, lowest first: OR, AND, NOT, equality, order, bits, sums, products, concatenation.

pub(super) const OR: u8 = 5;
pub(super) const AND: u8 = 10;
pub(super) const NOT: u8 = 15;
pub(super) const EQUALITY: u8 = 20;
pub(super) const ORDER: u8 = 22;
pub(super) const BITS: u8 = 26;
pub(super) const SUM: u8 = 30;
pub(super) const PRODUCT: u8 = 40;
pub(super) const CONCAT: u8 = 45;
/// The precedence of a sign before an operand.
pub(super) const SIGN: u8 = 48;
