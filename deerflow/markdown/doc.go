// Package markdown takes the text out of documents, as Markdown, for models to read.
//
// Documents come from strangers and their readers are large, so each is converted in a process of its own, with limits of time and memory. The
// old binary formats of Office (.doc, .ppt, .xls) cannot be converted.
package markdown
