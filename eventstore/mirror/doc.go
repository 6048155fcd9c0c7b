// Package mirror writes the log of each thread to a file of its own, one row per line, for people and their tools to read.
//
// A file is a projection: the database says which row was the last and where it ended, so a file can be mended or written anew at any
// time. What follows that place was written by a process that died before it could note it, or is half a row: it is cut off and written
// again. A file that does not have the noted row there is cut after its last whole row, or begun anew if that cannot be told.
//
// Rows are only appended. A run that is rolled back is marked in the log's own rows; in files, which have these rows already, it is the
// row run.rollback that says so.
package mirror
