// Package tool has the tools of DeerFlow's lead agent, with its names, arguments and results: files and a shell in a sandbox, presented files, images,
// questions to the user, lists of tasks, and the web.
//
// Mistakes of the model are results that begin with "Error:". An error ends up in the log, and in the agent's own words for failed tools.
package tool
