def embed(texts):
    if "explode" in texts:
        raise RuntimeError("secret")
    if "few" in texts:
        return []
    if "text" in texts:
        return ["abc"]
    return [(len(t), 0.5) for t in texts]


async def asynchronous(texts):
    return embed(texts)


class Model:
    def embed_documents(self, texts):
        return embed(texts)


model = Model()
