// Package changes compares the files of a thread before and after a run: which were created, modified or deleted, and how their texts differ.
//
// It follows no link, reads nothing outside of the thread's folder, and bounds what it reads, keeps and returns.
package changes
