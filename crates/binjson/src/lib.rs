//! Binary JSON: read a field without parsing the document.
