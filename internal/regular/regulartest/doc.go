// Package regulartest puts something else in place of files while a test reads and writes them.
package regulartest
