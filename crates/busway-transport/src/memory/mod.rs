//! Shared windows.
