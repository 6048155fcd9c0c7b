// Package style holds rules of the house as ordinary tests: imports point down, binaries link no test helpers, every package says what it
// is, and no file is committed half done. It has no code of its own.
package style
