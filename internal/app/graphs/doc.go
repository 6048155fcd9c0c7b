// Package graphs makes what executes the graphs that a langgraph.json names: options of Python workers, and the agents that it declares.
package graphs
