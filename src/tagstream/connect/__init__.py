"""Connectors: a tagger beside the tools in which people keep their tags.

A connector pulls items and tags from a *source* (paperless-ngx, GitHub issues), teaches them to a
*target* (a service, or a model file), pushes suggestions back, and follows what people change.

* ``target``, ``service``, ``model_file``: the two targets behind one protocol.
* ``state``: what a connector remembers, in one SQLite file.
* ``teaching``: what is new goes to the target, and is then remembered.
* ``web``: JSON from one host, with a token.
* ``paperless``, ``documents``: the interface of paperless-ngx, and what is done with its documents.
* ``github``, ``issues``: the same for the issues of a repository.
* ``agent``: tools for agents, over the Model Context Protocol.
"""
